// Backward with a bias: dx, and in the same pass the sums of its columns, in two stages, in the
// order of csrc/gates/column_sums.h. No float is added atomically: the last block of a segment of
// columns has the second stage.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/last_block.cuh"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/part.h"
#include "csrc/cuda/ring.cuh"
#include "csrc/cuda/tuning.h"
#include "csrc/gates/column_sums.h"

namespace gelu_kernels::cuda {

// dx of a lane's columns, row by row: apply() computes Terms from `inputs` numbers, of dy and
// perhaps x, and from the rest of a row, which load_rest() loads. Gate may be a mask, or
// WithLocationAndScale.
template <class Gate, class Precision, class Part>
struct Gradient;

// dx, and what is added to each of the sums.
template <class Real, int sums>
struct Terms {
  Real dx, added[sums];

  // To the sums of the columns from j on.
  template <class Sums>
  __device__ __forceinline__ void add_to(Sums& sum, int j) const {
    constexpr int size = sizeof(Real) / sizeof(sum[0][0]);
#pragma unroll
    for (int s = 0; s < sums; ++s) {
      // Not in pairs: the terms are products.
      std::decay_t<decltype(sum[0][0])> own[size];
      unpack(added[s], own);
#pragma unroll
      for (int k = 0; k < size; ++k) sum[s][j + k] += own[k];
    }
  }
};

// The rest of a Gradient that needs nothing but dy and x.
struct NoRest {
  struct Rest {};
  __device__ __forceinline__ Rest load_rest() { return {}; }
};

// The mask. A warp's rows are kWarps apart, as many as a byte has bits, so that the lane's bits
// begin at the same bit of a byte in all of them.
template <class Part>
struct RowsOfMask {
  struct Rest {
    // Elements that are spaced have a byte each; others share one, as there are no more than eight
    // and their number divides the length of the row. In whole registers, so that a load that is
    // skipped needs no instruction to keep the other half.
    uint32_t bytes[Part::spacing == 1 ? 1 : Part::size];
    int first_bit;

    // From the element j on, numbers that are kept, and 0 for others.
    template <class Numbers>
    __device__ __forceinline__ Numbers select(Numbers x, int j) const {
      using Real = typename Format<Numbers>::Number;
      Real numbers[sizeof(Numbers) / sizeof(Real)];
      cuda::unpack(x, numbers);
#pragma unroll
      for (int k = 0; k < static_cast<int>(sizeof(Numbers) / sizeof(Real)); ++k) {
        const uint32_t bits = bytes[Part::spacing == 1 ? 0 : j + k] >> first_bit;
        const bool kept = bits & (Part::spacing == 1 ? 1 << (j + k) : 1);
        numbers[k] = kept ? numbers[k] : Real(0);
      }
      memcpy(&x, numbers, sizeof x);
      return x;
    }
  };

  const uint8_t* row;
  int64_t step;
  int first_bit, left;

  __device__ __forceinline__ RowsOfMask(const ColumnSums& m, int64_t row, int64_t column, int left)
      : step(m.columns), left(left) {
    static_assert(kWarps == 8);
    const uint64_t bit = row * m.columns + column;
    this->row = m.mask + bit / 8;
    first_bit = Part::spacing == 1 && Part::size == 8 ? 0 : bit % 8;
  }
  __device__ __forceinline__ Rest load_rest() {
    Rest loaded = {};
    loaded.first_bit = first_bit;
    if constexpr (Part::spacing == 1) {
      loaded.bytes[0] = *row;
    } else {
#pragma unroll
      for (int j = 0; j < Part::size; ++j) {
        if (j * Part::spacing < left) loaded.bytes[j] = row[j * (Part::spacing / 8)];
      }
    }
    row += step;
    return loaded;
  }
};

template <class Gate, class Precision, class Part, class G = Gradient<Gate, Precision, Part>>
constexpr int kRowsAhead = column_sum_rows(G::inputs, G::sums, Part::spacing > 1);

// The sum of a column over the blocks of rows. A thread has a few lanes at a time, so that the
// kernel needs no more registers than for its rows.
template <class Real>
__device__ __forceinline__ Real add_blocks(const Real* partial, int blocks, int64_t columns) {
  constexpr int kLanes = 32 / sizeof(Real), kLoads = 2 * kLanes;
  Real total = 0;
#pragma unroll 1
  for (int lane = 0; lane < kBlockLanes; lane += kLanes) {
    Real sum[kLanes] = {};
#pragma unroll 1
    for (int block = lane; block < blocks; block += 2 * kBlockLanes) {
      const int left = blocks - block;
      const Real* from = partial + block * columns;
      Real loaded[kLoads] = {};
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (i / kLanes * kBlockLanes + i % kLanes < left) loaded[i] = *from;
        from += i == kLanes - 1 ? (kBlockLanes - kLanes + 1) * columns : columns;
        asm("" : "+l"(from));  // else the compiler multiplies for each address
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum[i % kLanes] += loaded[i];
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) total += sum[i];
  }
  return total;
}

// `counter` is that of the first segment, or -1 if the second stage is another kernel.
template <class Gate, class Precision, class Part>
__global__ void __launch_bounds__(kThreads, kColumnSumBlocksPerProcessor)
    sum_columns(const __grid_constant__ ColumnSums m, const Divisor segments, int block_rows,
                int counter) {
  using Real = typename Precision::Real;
  constexpr int segment = kWarp * Part::size;
  constexpr int kSums = Gradient<Gate, Precision, Part>::sums;
  constexpr int kInputs = Gradient<Gate, Precision, Part>::inputs;
  constexpr int kRows = kRowsAhead<Gate, Precision, Part>;
  static_assert(kWarps == kRowLanes);
  start_dependent();  // the second stage, if it is a kernel
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t block = segments.divide(blockIdx.x);
  const int64_t first_of_segment = (blockIdx.x - block * segments.divisor) * segment;
  const int offset = lane * (Part::spacing == 1 ? Part::size : 1);
  const int64_t first = first_of_segment + offset;
  const int left = static_cast<int>(min(m.columns - first, int64_t{segment}));

  Real sum[kSums][Part::size] = {};
  if (left > 0) {
    const int64_t begin = block_rows * block + warp;
    Gradient<Gate, Precision, Part> gradient(m, begin, first, left);
    char* dx_row = tile_at(m.dx, begin, first).data;
    const char* rows_of[] = {tile_at(m.dy, begin, first).data, tile_at(m.x, begin, first).data};
    const int64_t strides[] = {m.dy.column_stride, m.x.column_stride};
    const int64_t steps[] = {kWarps * m.dy.row_stride, kWarps * m.x.row_stride};

    Ring<Part, kRows, kInputs> ring;
    const auto load = [&](int i) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        ring.load(i, k, rows_of[k], strides[k], left);
        rows_of[k] += steps[k];
      }
    };
    // Loaded for a whole round of the ring at a time, so that the wait for it is a round later.
    typename Gradient<Gate, Precision, Part>::Rest rest[kRows], next_rest[kRows];

    const int64_t end = min(block_rows * (block + 1), m.rows);
    int rows = begin < end ? static_cast<int>((end - begin + kWarps - 1) / kWarps) : 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i < rows) {
        load(i);
        next_rest[i] = gradient.load_rest();
      }
      ring.end_row();
    }
#pragma unroll 1
    for (; rows > 0; rows -= kRows) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) rest[i] = next_rest[i];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i + kRows < rows) next_rest[i] = gradient.load_rest();
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i > 0 && i >= rows) break;
        Real of[kInputs][Part::size], dx[Part::size];
        ring.wait();
#pragma unroll
        for (int k = 0; k < kInputs; ++k) ring.at(i, k).unpack(of[k]);
        if (i + kRows < rows) load(i);
        ring.end_row();
#pragma unroll
        for (int j = 0; j < Part::size; j += kPacked<Real>) {
          const auto result = gradient.apply(of, rest[i], j);
          unpack(result.dx, dx + j);
          result.add_to(sum, j);
        }
        Part::round(dx).store(dx_row, m.dx.column_stride, left);
        dx_row += kWarps * m.dx.row_stride;
      }
    }
    if constexpr (kSums == 2) gradient.finish(sum[1]);
  }

  __shared__ Real sums[kSums][kWarps][segment];
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
#pragma unroll
    for (int j = 0; j < Part::size; ++j) sums[k][warp][offset + j * Part::spacing] = sum[k][j];
  }
  __syncthreads();
  // Read anew, as what follows from it would have been in registers all the time.
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  const uint32_t row_block = segments.divide(index);
  const uint32_t of_segment = index - row_block * segments.divisor;
  const int64_t column = int64_t{of_segment} * segment + threadIdx.x;
  const bool is_there = threadIdx.x < segment && column < m.columns;
  if (is_there) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      Real total = sums[k][0][threadIdx.x];
      for (int i = 1; i < kWarps; ++i) total += sums[k][i][threadIdx.x];
      static_cast<Real*>(m.partials[k])[row_block * m.columns + column] = total;
    }
  }
  if (counter < 0) return;
  const uint32_t blocks = segments.divide(gridDim.x);
  if (!is_last_block(counter + of_segment, blocks) || !is_there) return;
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    if (!m.sums[k]) continue;
    const Real* const partial = static_cast<const Real*>(m.partials[k]) + column;
    const Real total = add_blocks(partial, static_cast<int>(blocks), m.columns);
    reinterpret_cast<StorageOf<Precision>*>(m.sums[k])[column] = Storage<Precision>::store(total);
  }
}

template <class Precision>
constexpr Dtype kDtype = std::is_same_v<Precision, fp64>   ? Dtype::float64
                         : std::is_same_v<Precision, fp32> ? Dtype::float32
                         : std::is_same_v<Precision, fp16> ? Dtype::float16
                                                           : Dtype::bfloat16;

// A call that needs no second kernel loads it, too: one in the capture of a graph may need it.
template <class Precision, auto... kernels>
struct WithSecondStage : KernelSet<kernels...> {
  static cudaError_t load(int device) {
    if (const cudaError_t error = KernelSet<kernels...>::load(device)) return error;
    return static_cast<cudaError_t>(add_partial_sums(kDtype<Precision>).load(device));
  }
};

inline bool are_vectors(const ColumnSums& m, int64_t size) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(m.parameters[0]) |
                   reinterpret_cast<uintptr_t>(m.parameters[1]) |
                   reinterpret_cast<uintptr_t>(m.code);
  for (const Matrix* matrix : {&m.dx, &m.dy, m.x.data ? &m.x : &m.dy}) {
    if (matrix->column_stride != size) return false;
    bits |= reinterpret_cast<uintptr_t>(matrix->data) | static_cast<uintptr_t>(matrix->row_stride);
  }
  bits |= static_cast<uintptr_t>(m.columns * size);
  return bits % kVectorBytes == 0 && m.columns * size >= kLeastRowBytes;
}

// Both stages; the second one where m.sums are given.
template <class Gate, class Precision>
Error launch_backward_column_sums(Queue queue, const ColumnSums& m) {
  using T = StorageOf<Precision>;
  const RowBlocks rows(m.rows);
  const bool vectors = are_vectors(m, sizeof(T));
  constexpr auto of_vectors = sum_columns<Gate, Precision, Consecutive<Precision>>;
  constexpr auto of_elements = sum_columns<Gate, Precision, Spaced<Precision>>;
  using Kernels = WithSecondStage<Precision, of_vectors, of_elements>;
  const auto kernel = vectors ? of_vectors : of_elements;
  const int segment = kWarp * (vectors ? Consecutive<Precision>::size : Spaced<Precision>::size);
  static_assert(kWarp * Vector<Precision>::size <= kThreads && kWarp * kElements <= kThreads);
  const int64_t segments = (m.columns + segment - 1) / segment;
  const bool has_sums = m.sums[0] || m.sums[1];
  const int counter =
      has_sums && rows.count <= kMostBlocksOfLast ? counters_of(m.partials[0], segments) : -1;
  const Error error = launch<Kernels>(queue, kernel, segments * rows.count, kThreads, m,
                                      Divisor(static_cast<uint32_t>(segments)),
                                      static_cast<int>(rows.block_rows), counter);
  if (error || counter >= 0) return error;
  for (int k = 0; k < 2; ++k) {
    if (!m.sums[k]) continue;
    const PartialSums second{m.partials[k], rows.count, m.columns, m.sums[k]};
    if (const Error error = add_partial_sums(kDtype<Precision>).add(queue, second)) return error;
  }
  return {};
}

template <class Gate, class Precision>
struct BackwardColumnSumsOf {
  static constexpr BackwardColumnSums value = launch_backward_column_sums<Gate, Precision>;
};

}  // namespace gelu_kernels::cuda
