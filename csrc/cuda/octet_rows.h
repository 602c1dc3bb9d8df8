// Octets that are distributed over a GPU by rows: a thread's lie below each other, so that it loads
// a bias once, and finds its place once.
#pragma once

#include <initializer_list>
#include <limits>

#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"

namespace gelu_kernels::cuda {

// A thread's octets, the first one at a row and a column that are counted in octets.
template <class Precision, int kRows>
struct OctetRows {
  uint32_t row, column, first, step, end;

  explicit __device__ __forceinline__ OctetRows(const Octets& octets)
      : step(octets.row_in_octets.divisor), end(static_cast<uint32_t>(octets.in_vectors)) {
    const uint32_t place = blockIdx.x * kOctetThreads + threadIdx.x;
    const uint32_t group = octets.row_in_octets.divide(place);
    column = place - group * step;
    row = group * kRows;
    first = row * step + column;
  }
  __device__ __forceinline__ uint32_t octet(int i) const { return first + i * step; }
  __device__ __forceinline__ bool has(int i) const { return octet(i) < end; }
  __device__ __forceinline__ char* at(const Matrix& m, int i) const {
    // Rows are less than 2^32 bytes apart: in 64 bits the product would take two instructions.
    const uint64_t before = uint64_t{row + i} * static_cast<uint32_t>(m.row_stride);
    return m.data + uint64_t{column} * kBytes + before;
  }
  // Of numbers that lie along the columns.
  __device__ __forceinline__ Octet<Precision> load_along(const char* columns) const {
    return Octet<Precision>::load(columns + uint64_t{column} * kBytes);
  }

 private:
  static constexpr int kBytes = kOctet * sizeof(StorageOf<Precision>);
};

// Starts the kernel of rows for octets in vectors, and that of elements for the others, from an
// octet on. `matrices` are the operands that have rows.
template <class Kernels, int kRows, class Operands, class... Last>
Error launch_octets(Queue queue, Operands m, Octets octets,
                    std::initializer_list<Matrix Operands::*> matrices,
                    void (*of_rows)(Operands, Octets, Last...),
                    void (*of_elements)(Operands, Octets, int64_t first, Last...), Last... last) {
  int64_t rows = m.rows;
  if (rows == 1 && !m.bias && octets.in_vectors) {
    // A block's threads have octets side by side.
    octets.row_in_octets = Divisor(kOctetThreads);
    rows = (octets.in_vectors + kOctetThreads - 1) / kOctetThreads;
    for (const auto matrix : matrices) {
      (m.*matrix).row_stride = kOctetThreads * kOctet * (m.*matrix).column_stride;
    }
  }
  const int64_t step = octets.row_in_octets.divisor, places = (rows + kRows - 1) / kRows * step;
  // A thread numbers octets beyond the end, in 32 bits.
  const int64_t numbers = (places + kOctetThreads + step) * kRows;
  if (numbers > std::numeric_limits<uint32_t>::max()) octets.in_vectors = 0;
  const auto blocks = [](int64_t threads) { return (threads + kOctetThreads - 1) / kOctetThreads; };
  if (octets.in_vectors) {
    const Error error =
        launch<Kernels>(queue, of_rows, blocks(places), kOctetThreads, m, octets, last...);
    if (error || octets.in_vectors == octets.count()) return error;
  }
  return launch<Kernels>(queue, of_elements, blocks(octets.count() - octets.in_vectors),
                         kOctetThreads, m, octets, octets.in_vectors, last...);
}

}  // namespace gelu_kernels::cuda
