// The general gated linear unit, row by row. A warp computes a tile of a row: the whole row in a
// backward pass that sums the gradient of the weights, else what it loads at a time.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/part.h"
#include "csrc/cuda/tuning.h"
#include "csrc/gates/glu_rows.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

template <int size, class Real>
__device__ __forceinline__ void add_neighbours(Real (&sums)[size]) {
#pragma unroll
  for (int count = size / 2; count > 0; count /= 2) {
#pragma unroll
    for (int j = 0; j < count; ++j) sums[j] = sums[2 * j] + sums[2 * j + 1];
  }
}

template <class Real>
__device__ __forceinline__ Real add_lanes_of_warp(Real sum) {
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  return sum;
}

// The sum of kGluLanes lanes, over a warp. Each thread holds the lanes of its own columns.
template <class Part, int parts, int size, class Real>
__device__ __forceinline__ Real sum_of(Real (&lanes)[parts][size]) {
  Real sums[parts];
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    if constexpr (Part::spacing == 1) {
      add_neighbours(lanes[p]);
      sums[p] = add_lanes_of_warp(lanes[p][0]);
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) lanes[p][j] = add_lanes_of_warp(lanes[p][j]);
      add_neighbours(lanes[p]);
      sums[p] = lanes[p][0];
    }
  }
  add_neighbours(sums);
  return sums[0];
}

template <class Function, class Precision, class Part>
struct GluRowMap {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  static constexpr int inputs = Function::inputs, outputs = Function::outputs;
  static constexpr bool has_sum = outputs == 2;
  static constexpr int size = Part::size;
  static constexpr int width = kWarp * size;                     // columns of an access of a warp
  static constexpr int parts = has_sum ? kGluLanes / width : 1;  // accesses of all the lanes
  // Accesses that are under way, each loaded again as soon as it is computed.
  static constexpr int ahead = has_sum ? glu_sum_accesses(sizeof(Real)) : rows_in_flight(inputs);
  static constexpr int unrolled = parts > ahead ? parts : ahead;
  static_assert(unrolled % parts == 0 && unrolled % ahead == 0);
  static constexpr int step = unrolled * width;
  static constexpr int blocks =
      has_sum ? kColumnSumBlocksPerProcessor : glu_blocks_per_processor(inputs);

  // Of a vector of each operand.
  template <size_t... k>
  static __device__ __forceinline__ void apply(Part (&out)[outputs], const Part (&in)[inputs],
                                               const GluNumbers<Real>& numbers, Real (&lanes)[size],
                                               std::index_sequence<k...>) {
    Real from[inputs][size], to[outputs][size];
    (in[k].unpack(from[k]), ...);
#pragma unroll
    for (int j = 0; j < size; j += kPacked<Real>) {
      const auto result = Function::apply(numbers, pack(from[k] + j)...);
      if constexpr (has_sum) {
        Real terms[kPacked<Real>];
        unpack(result.dx, to[0] + j);
        unpack(result.dup, to[1] + j);
        unpack(result.weight_term, terms);
#pragma unroll
        for (int i = 0; i < kPacked<Real>; ++i) lanes[j + i] += terms[i];  // they are products
      } else {
        unpack(result, to[0] + j);
      }
    }
#pragma unroll
    for (int r = 0; r < outputs; ++r) out[r] = Part::round(to[r]);
  }
};

template <class Function, class Precision, class Part>
__global__ void __launch_bounds__(kThreads, GluRowMap<Function, Precision, Part>::blocks)
    glu_rows(const __grid_constant__ GluRows m, GluNumbers<typename Precision::Real> numbers,
             const WideDivisor tiles, int64_t tile) {
  using M = GluRowMap<Function, Precision, Part>;
  using T = typename M::T;
  using Real = typename M::Real;
  constexpr int inputs = M::inputs, outputs = M::outputs;
  const uint64_t warp = uint64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const int64_t row = tiles.divide(warp);
  if (row >= m.rows) return;
  const int offset = threadIdx.x % kWarp * (Part::spacing == 1 ? M::size : 1);
  const int64_t first = (warp - row * tiles.divisor) * tile;
  if (m.weight) {
    numbers.weight = Storage<Precision>::load(reinterpret_cast<const T*>(m.weight)[row]);
  }

  const auto column_stride = [&m](int k) {
    return Part::spacing == 1 ? int64_t{sizeof(T)} : m.operands[k].column_stride;
  };
  char* at[outputs + inputs];  // the lane's element of each operand
#pragma unroll
  for (int k = 0; k < outputs + inputs; ++k) {
    at[k] = tile_at(m.operands[k], row, first + offset).data;
  }
  Real lanes[M::parts][M::size] = {};
  Part in[M::ahead][inputs];
  // Takes the lane's accesses in turn. The last one has `left_of_last` columns left.
  const auto take = [&](auto is_whole, int accesses, int left_of_last) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const auto is_in_tile = [&](int i) { return kWhole || i < accesses; };
    const auto left_of = [&](int i) { return is_in_tile(i + 1) ? M::width : left_of_last; };
    const auto load = [&](int i) {
#pragma unroll
      for (int k = 0; k < inputs; ++k) {
        char*& from = at[outputs + k];
        in[i % M::ahead][k] = Part::load(from, column_stride(outputs + k), left_of(i));
        from += M::width * column_stride(outputs + k);
      }
    };
#pragma unroll
    for (int i = 0; i < M::ahead; ++i) {
      if (is_in_tile(i)) load(i);
    }
#pragma unroll 1
    for (; is_in_tile(0); accesses -= M::unrolled) {
#pragma unroll
      for (int i = 0; i < M::unrolled; ++i) {
        if (i > 0 && !is_in_tile(i)) break;
        Part out[outputs];
        M::apply(out, in[i % M::ahead], numbers, lanes[i % M::parts],
                 std::make_index_sequence<inputs>());
#pragma unroll
        for (int r = 0; r < outputs; ++r) {
          out[r].store(at[r], column_stride(r), left_of(i));
          at[r] += M::width * column_stride(r);
        }
        if (M::has_sum && i + M::ahead < accesses) load(i + M::ahead);
      }
      if constexpr (!M::has_sum) return;  // a step is all of the tile
    }
  };
  if (const int64_t left = m.columns - first; !M::has_sum && left >= M::step) {
    take(std::true_type(), M::unrolled, M::width);
  } else if (const int64_t of_lane = min(left, tile) - offset; of_lane > 0) {
    const int accesses = static_cast<int>((of_lane + M::width - 1) / M::width);
    take(std::false_type(), accesses, static_cast<int>(of_lane - int64_t{accesses - 1} * M::width));
  }
  if constexpr (M::has_sum) {
    if (!m.dweight) return;
    const Real sum = sum_of<Part>(lanes);
    if (threadIdx.x % kWarp == 0) {
      reinterpret_cast<T*>(m.dweight)[row] = Storage<Precision>::store(sum);
    }
  }
}

template <class Function, class Precision>
Error launch_glu_rows(Queue queue, const GluRows& m) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  using OfVectors = GluRowMap<Function, Precision, Consecutive<Precision>>;
  using OfElements = GluRowMap<Function, Precision, Spaced<Precision>>;
  constexpr auto of_vectors = glu_rows<Function, Precision, Consecutive<Precision>>;
  constexpr auto of_elements = glu_rows<Function, Precision, Spaced<Precision>>;
  bool are_vectors = m.columns * sizeof(T) % kVectorBytes == 0;
  for (int k = 0; k < Function::outputs + Function::inputs; ++k) {
    const auto [data, column_stride, row_stride] = m.operands[k];
    const uint64_t bits = reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(row_stride);
    are_vectors &= column_stride == sizeof(T) && bits % kVectorBytes == 0;
  }
  const int64_t step = are_vectors ? OfVectors::step : OfElements::step;
  const int64_t tile = m.dweight ? m.columns : step;
  const int64_t tiles = (m.columns + tile - 1) / tile;
  const int64_t blocks = (m.rows * tiles + kWarps - 1) / kWarps;
  const GluNumbers<Real> numbers{static_cast<Real>(m.limit), static_cast<Real>(m.up_offset), 1};
  return launch<KernelSet<of_vectors, of_elements>>(
      queue, are_vectors ? of_vectors : of_elements, blocks, kThreads, m, numbers,
      WideDivisor(static_cast<uint64_t>(tiles)), tile);
}

template <template <class, class> class Function>
struct GluRowsOf {
  template <class Gate, class Precision>
  struct Entry {
    static constexpr Error (*value)(Queue, const GluRows&) =
        launch_glu_rows<Function<Gate, Precision>, Precision>;
  };
};

}  // namespace gelu_kernels::cuda
