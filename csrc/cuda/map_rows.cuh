// An element by element function over rows of 16-byte vectors.
//
// A warp has a segment of columns, one vector for each lane, and kRows rows of it: it loads them
// all, or a few ahead, then computes. The last kColumns inputs, such as a bias, are the same in
// every row: their segments stay in registers, or what comes of a location and a scale.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/tuning.h"
#include "csrc/cuda/vector.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

template <class Function, class Precision, int kColumns>
struct RowMap {
  using Real = typename Precision::Real;
  using V = Vector<Precision>;
  static constexpr int inputs = Function::inputs - kColumns;  // that differ from row to row
  static constexpr int outputs = Function::outputs;
  static constexpr bool has_scale = kColumns == 2;  // after a location
  static constexpr int ahead =
      has_scale ? scaled_map_rows_ahead(sizeof(typename V::T)) : rows_in_flight(inputs);
  static constexpr int rows = has_scale ? kScaledMapRows : ahead;
  static constexpr int blocks =
      has_scale ? scaled_map_blocks_per_processor(sizeof(typename V::T), kPacked<Real> > 1)
                : map_blocks_per_processor(inputs, sizeof(Real), kPacked<Real> > 1);
  static constexpr int kNumbers = kColumns + has_scale;      // of a column
  using Along = Real[kNumbers > 0 ? kNumbers : 1][V::size];  // the columns

  template <size_t... k, size_t... c>
  static __device__ __forceinline__ void apply(V (&out)[outputs], const V (&in)[inputs],
                                               const Along& along, std::index_sequence<k...>,
                                               std::index_sequence<c...>) {
    Real numbers[inputs][V::size], results[outputs][V::size];
    (in[k].unpack(numbers[k]), ...);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      if constexpr (outputs == 2) {
        const auto two = Function::apply(pack(numbers[k] + j)...);
        unpack(two.first, results[0] + j);
        unpack(two.second, results[1] + j);
      } else {
        unpack(Function::apply(pack(numbers[k] + j)..., pack(along[c] + j)...), results[0] + j);
      }
    }
#pragma unroll
    for (int r = 0; r < outputs; ++r) {
      if constexpr (Function::is_value) {
        out[r] = V::template round_values<Function::ties>(results[r], in[0]);
      } else {
        out[r] = V::round(results[r]);
      }
    }
  }
};

template <class Function, class Precision, int kColumns, int kRows>
__global__ void __launch_bounds__(kMapThreads, RowMap<Function, Precision, kColumns>::blocks)
    map_rows(const __grid_constant__ Rows m, const Divisor segments) {
  using M = RowMap<Function, Precision, kColumns>;
  using V = typename M::V;
  using T = typename V::T;
  using Real = typename M::Real;
  constexpr int inputs = M::inputs, outputs = M::outputs;
  constexpr auto each = std::make_index_sequence<inputs>();
  constexpr auto each_along = std::make_index_sequence<M::kNumbers>();

  const uint32_t warp = blockIdx.x * kMapWarps + threadIdx.x / kWarp;
  const int group = segments.divide(warp);
  const int segment = warp - group * segments.divisor;
  const int row = group * kRows;
  const int column = (segment * kWarp + threadIdx.x % kWarp) * V::size;
  if (column >= m.columns || row >= m.rows) return;

  typename M::Along along;
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    V::load(reinterpret_cast<const T*>(m.data[outputs + inputs + k]) + column).unpack(along[k]);
  }
  if constexpr (M::has_scale) {
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      const Column<Real> own = Function::column(along[0][j], along[1][j]);
      along[1][j] = own.extra;
      along[2][j] = own.inverse;
    }
  }

  char* first[outputs + inputs];  // element of this lane in each operand
#pragma unroll
  for (int k = 0; k < outputs + inputs; ++k) {
    first[k] = m.data[k] + static_cast<int64_t>(row) * m.row_stride[k] + column * sizeof(T);
  }
  const auto address = [&](int k, int i) {
    return reinterpret_cast<T*>(first[k] + static_cast<int64_t>(i) * m.row_stride[k]);
  };

  // The last row may end within the lane's vector, unless an input lies along the columns.
  const int left = m.last_columns - column;
  const bool is_cut = kColumns == 0 && left < V::size;
  const int rows = min(m.rows - is_cut - row, kRows);
  // A branch before each row keeps ptxas from moving its load to where it is needed, one latency
  // after the other.
  constexpr int kAhead = M::ahead < kRows ? M::ahead : kRows;
  V in[kAhead][inputs];
  const auto load = [&](int i) {
    if (i < rows) {
#pragma unroll
      for (int k = 0; k < inputs; ++k) in[i % kAhead][k] = V::load(address(outputs + k, i));
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (i >= rows) break;
    V out[outputs];
    M::apply(out, in[i % kAhead], along, each, each_along);
#pragma unroll
    for (int r = 0; r < outputs; ++r) out[r].store(address(r, i));
    if (i + kAhead < kRows) load(i + kAhead);
  }
  if constexpr (kColumns == 0) {
    if (!is_cut || rows == kRows) return;
    V out[outputs];
#pragma unroll
    for (int k = 0; k < inputs; ++k) {
      T elements[V::size] = {};
#pragma unroll
      for (int j = 0; j < V::size; ++j) {
        if (j < left) elements[j] = address(outputs + k, rows)[j];
      }
      memcpy(&in[0][k].words, elements, sizeof elements);
    }
    M::apply(out, in[0], along, each, each_along);
#pragma unroll
    for (int r = 0; r < outputs; ++r) {
      T elements[V::size];
      memcpy(elements, &out[r].words, sizeof elements);
#pragma unroll
      for (int j = 0; j < V::size; ++j) {
        if (j < left) address(r, rows)[j] = elements[j];
      }
    }
  }
}

template <class Kernels, class Function, class Precision, int kColumns>
Error launch_map_rows(Queue queue, const Rows& m) {
  constexpr int kRows = RowMap<Function, Precision, kColumns>::rows;
  constexpr int segment = kSegmentBytes / static_cast<int>(sizeof(StorageOf<Precision>));
  const int64_t segments = (m.columns + segment - 1) / segment;
  const bool small = m.rows * segments * kSegmentBytes <= kSmallBytes;
  const int64_t warp_rows = small ? 1 : kRows;
  const int64_t warps = (m.rows + warp_rows - 1) / warp_rows * segments;
  const auto kernel = small ? map_rows<Function, Precision, kColumns, 1>
                            : map_rows<Function, Precision, kColumns, kRows>;
  return launch<Kernels>(queue, kernel, (warps + kMapWarps - 1) / kMapWarps, kMapThreads, m,
                         Divisor(static_cast<uint32_t>(segments)));
}

}  // namespace gelu_kernels::cuda
