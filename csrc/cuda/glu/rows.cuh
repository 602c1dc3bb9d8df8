// The general gated linear unit, row by row. A warp computes a tile of a row: the whole row in a
// backward pass that sums the gradient of the weights, else what it loads at a time.
#pragma once

#include <algorithm>
#include <limits>

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
  // Accesses that are loaded at a time.
  static constexpr int ahead = has_sum ? glu_sum_accesses(sizeof(Real)) : rows_in_flight(inputs);
  static constexpr int unrolled = parts > ahead ? parts : ahead;
  static_assert(unrolled % parts == 0 && unrolled % ahead == 0);
  static constexpr int step = unrolled * width;
  static constexpr int blocks =
      has_sum ? glu_sum_blocks_per_processor(sizeof(Real), kPacked<Real> > 1, Part::spacing > 1)
              : map_blocks_per_processor(inputs, sizeof(Real), kPacked<Real> > 1);

  // Elements of a branch: all threads have the same limit, and mostly there is none. With all eight
  // 16-bit elements in one, ptxas keeps so many numbers at a time that backward would spill them.
  static constexpr int branch = size < 4 ? size : 4;

  // Of a vector of each operand.
  template <size_t... k>
  static __device__ __forceinline__ void apply(Part (&out)[outputs], const Part (&in)[inputs],
                                               const GluNumbers<Real>& numbers, Real (&lanes)[size],
                                               std::index_sequence<k...>) {
    Real from[inputs][size], to[outputs][size];
    (in[k].unpack(from[k]), ...);
    const auto compute = [&](auto is_limited, int first) {
#pragma unroll
      for (int j = first; j < first + branch; j += kPacked<Real>) {
        const auto result = decltype(is_limited)::value
                                ? Function::apply(numbers, pack(from[k] + j)...)
                                : Function::of_clamped(numbers, pack(from[k] + j)...);
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
    };
#pragma unroll
    for (int j = 0; j < size; j += branch) {
      if (numbers.limit <= Format<Real>::largest) {
        compute(std::true_type(), j);
      } else {
        compute(std::false_type(), j);
      }
    }
#pragma unroll
    for (int r = 0; r < outputs; ++r) out[r] = Part::round(to[r]);
  }
};

template <class Function, class Precision, class Part>
__global__ void __launch_bounds__(kMapThreads, GluRowMap<Function, Precision, Part>::blocks)
    glu_rows(const __grid_constant__ GluRows m, GluNumbers<typename Precision::Real> numbers,
             const Divisor tiles) {
  using M = GluRowMap<Function, Precision, Part>;
  using T = typename M::T;
  using Real = typename M::Real;
  constexpr int inputs = M::inputs, outputs = M::outputs;
  const uint32_t warp = blockIdx.x * kMapWarps + threadIdx.x / kWarp;
  const uint32_t row = tiles.divide(warp);
  if (row >= m.rows) return;
  const int offset = threadIdx.x % kWarp * (Part::spacing == 1 ? M::size : 1);
  const int64_t first = int64_t{warp - row * tiles.divisor} * M::step + offset;
  // The lane's accesses to the end of the row.
  int64_t left = m.columns - first;
  int accesses = static_cast<int>(static_cast<uint64_t>(left + M::width - 1) / M::width);
  if (!M::has_sum || !m.dweight) accesses = min(accesses, M::unrolled);
  if (m.weight) {
    numbers.weight = Storage<Precision>::load(reinterpret_cast<const T*>(m.weight)[row]);
  }

  const auto column_stride = [&m](int k) {
    return Part::spacing == 1 ? int64_t{sizeof(T)} : m.operands[k].column_stride;
  };
  char* at[outputs + inputs];  // the lane's element of each operand
#pragma unroll
  for (int k = 0; k < outputs + inputs; ++k) {
    at[k] = m.operands[k].data + row * m.operands[k].row_stride + first * column_stride(k);
  }
  const auto left_of = [&](int i) {
    return static_cast<int>(min(left - i * M::width, int64_t{M::width}));
  };
  const auto address = [&](int k, int i) { return at[k] + i * M::width * column_stride(k); };
  Real lanes[M::parts][M::size] = {};
#pragma unroll 1
  for (; accesses > 0; accesses -= M::unrolled) {
#pragma unroll
    for (int first = 0; first < M::unrolled; first += M::ahead) {
      // As in map_rows, a branch before each access keeps ptxas from moving the loads.
      Part in[M::ahead][inputs];
#pragma unroll
      for (int i = 0; i < M::ahead; ++i) {
        if (first + i >= accesses) break;
#pragma unroll
        for (int k = outputs; k < outputs + inputs; ++k) {
          in[i][k - outputs] =
              Part::load(address(k, first + i), column_stride(k), left_of(first + i));
        }
      }
#pragma unroll
      for (int i = 0; i < M::ahead; ++i) {
        if (first + i >= accesses) break;
        Part out[outputs];
        M::apply(out, in[i], numbers, lanes[(first + i) % M::parts],
                 std::make_index_sequence<inputs>());
#pragma unroll
        for (int k = 0; k < outputs; ++k) {
          out[k].store(address(k, first + i), column_stride(k), left_of(first + i));
        }
      }
    }
    if constexpr (M::has_sum) {
#pragma unroll
      for (int k = 0; k < outputs + inputs; ++k) at[k] = address(k, M::unrolled);
      left -= M::step;
    } else {
      return;  // a step is all of the tile
    }
  }
  if constexpr (M::has_sum) {
    if (!m.dweight) return;
    const Real sum = sum_of<Part>(lanes);
    if (threadIdx.x % kWarp == 0) {
      reinterpret_cast<T*>(m.dweight)[row] = Storage<Precision>::store(sum);
    }
  }
}

inline GluRows rows_from(GluRows m, int64_t first, int64_t rows, int64_t size) {
  for (Matrix& operand : m.operands) operand.data += first * operand.row_stride;
  if (m.weight) m.weight += first * size;
  if (m.dweight) m.dweight += first * size;
  m.rows = rows;
  return m;
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
  const int64_t tiles = m.dweight ? 1 : (m.columns + step - 1) / step;
  const GluNumbers<Real> numbers{static_cast<Real>(m.limit), static_cast<Real>(m.up_offset), 1};
  // As many rows at a time as there are numbers of warps for: the kernel's division is of 31 bits.
  const int64_t most = (std::numeric_limits<int32_t>::max() - kMapWarps) / tiles;
  for (int64_t first = 0; first < m.rows; first += most) {
    const GluRows some = rows_from(m, first, std::min(most, m.rows - first), sizeof(T));
    const Error error = launch<KernelSet<of_vectors, of_elements>>(
        queue, are_vectors ? of_vectors : of_elements,
        (some.rows * tiles + kMapWarps - 1) / kMapWarps, kMapThreads, some, numbers,
        Divisor(static_cast<uint32_t>(tiles)));
    if (error) return error;
  }
  return {};
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
