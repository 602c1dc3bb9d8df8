// An element by element function over rows of 16-byte vectors.
//
// A warp has a segment of columns, one vector for each lane, and kRows rows of it: it loads them
// all, then computes. The last kColumns inputs, such as a bias, are the same in every row: their
// segments stay in registers, and the inverse of a scale too.
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
  static constexpr int rows = rows_in_flight(inputs + has_scale);
  static constexpr int blocks =
      has_scale ? kScaledBlocksPerProcessor : blocks_per_processor(inputs);
  // ptxas would load a part of three inputs, or of the rows beside a bias in pairs, when it needs
  // it, one latency after the other. It does not move a load into a loop over the rows.
  static constexpr bool is_loop =
      inputs == 3 || (kColumns == 1 && is_half<Precision> && kPacked<Real> > 1);

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
        out[r] = V::template round_values<Function::may_tie>(results[r], in[0]);
      } else {
        out[r] = V::round(results[r]);
      }
    }
  }
};

template <class Function, class Precision, int kColumns, int kRows>
__global__ void __launch_bounds__(kThreads, RowMap<Function, Precision, kColumns>::blocks)
    map_rows(const __grid_constant__ Rows m, const Divisor segments) {
  using M = RowMap<Function, Precision, kColumns>;
  using V = typename M::V;
  using T = typename V::T;
  constexpr int inputs = M::inputs, outputs = M::outputs;
  constexpr auto each = std::make_index_sequence<inputs>();
  constexpr auto each_along = std::make_index_sequence<M::kNumbers>();

  const uint32_t warp = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const int group = segments.divide(warp);
  const int segment = warp - group * segments.divisor;
  const int row = group * kRows;
  const int column = (segment * kWarp + threadIdx.x % kWarp) * V::size;
  if (column >= m.columns) return;

  typename M::Along along;
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    V::load(reinterpret_cast<const T*>(m.data[outputs + inputs + k]) + column).unpack(along[k]);
  }
  if constexpr (M::has_scale) {
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      along[1][j] = bounded(along[1][j]);
      along[2][j] = inverse_of(along[1][j]);
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

  if (row + kRows < m.rows ||
      (row + kRows == m.rows && (kColumns > 0 || column + V::size <= m.last_columns))) {
    V in[kRows][inputs];
#pragma unroll
    for (int k = 0; k < inputs; ++k) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) in[i][k] = V::load(address(outputs + k, i));
    }
    constexpr bool kIsLoop = M::is_loop;  // the rows to come move up in their registers
#pragma unroll(kIsLoop ? 1 : kRows)
    for (int i = 0; i < kRows; ++i) {
      V out[outputs];
      M::apply(out, in[kIsLoop ? 0 : i], along, each, each_along);
#pragma unroll
      for (int r = 0; r < outputs; ++r) {
        out[r].store(address(r, kIsLoop ? 0 : i));
        if constexpr (kIsLoop) first[r] += m.row_stride[r];
      }
#pragma unroll
      for (int next = 1; kIsLoop && next < kRows; ++next) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) in[next - 1][k] = in[next][k];
      }
    }
    return;
  }
  // The last rows, and if no input lies along the columns, less than a vector at the end of the
  // last one. Where a warp has one row there is no loop: that takes five registers less.
  if constexpr (kRows > 1 || kColumns == 0) {
#pragma unroll 1
    for (int i = 0; row + i < m.rows && (i == 0 || kRows > 1); ++i) {
      const int left = (row + i + 1 < m.rows ? m.columns : m.last_columns) - column;
      V in[inputs], out[outputs];
#pragma unroll
      for (int k = 0; k < inputs; ++k) {
        if constexpr (kColumns > 0) {
          in[k] = V::load(address(outputs + k, i));
        } else {
          T elements[V::size] = {};
#pragma unroll
          for (int j = 0; j < V::size; ++j) {
            if (j < left) elements[j] = address(outputs + k, i)[j];
          }
          memcpy(&in[k].words, elements, sizeof elements);
        }
      }
      M::apply(out, in, along, each, each_along);
#pragma unroll
      for (int r = 0; r < outputs; ++r) {
        if constexpr (kColumns > 0) {
          out[r].store(address(r, i));
        } else {
          T elements[V::size];
          memcpy(elements, &out[r].words, sizeof elements);
#pragma unroll
          for (int j = 0; j < V::size; ++j) {
            if (j < left) address(r, i)[j] = elements[j];
          }
        }
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
  return launch<Kernels>(queue, kernel, (warps + kWarps - 1) / kWarps, kThreads, m,
                         Divisor(static_cast<uint32_t>(segments)));
}

}  // namespace gelu_kernels::cuda
