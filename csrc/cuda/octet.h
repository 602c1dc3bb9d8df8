// A thread's share of elements with a mask: eight in row-major order, which have one byte of the
// mask. Whole octets in vectors are processed as vectors, others element by element.
#pragma once

#include <limits>

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/vector.h"
#include "csrc/gates/column_sums.h"

namespace gelu_kernels::cuda {

constexpr int kOctet = 8;

template <class Precision>
struct Octet {
  using V = Vector<Precision>;
  using T = typename V::T;
  static constexpr int count = kOctet / V::size;

  V vectors[count];

  static __device__ __forceinline__ Octet load(const char* from) {
    Octet octet;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      octet.vectors[i] = V::load(reinterpret_cast<const T*>(from) + i * V::size);
    }
    return octet;
  }
  __device__ __forceinline__ void unpack(typename Precision::Real (&to)[kOctet]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      typename Precision::Real numbers[V::size];
      vectors[i].unpack(numbers);
#pragma unroll
      for (int j = 0; j < V::size; ++j) to[i * V::size + j] = numbers[j];
    }
  }
  __device__ __forceinline__ void store(char* to) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      vectors[i].store(reinterpret_cast<T*>(to) + i * V::size);
    }
  }
};

// Where elements are, from one to the next: in rows of a length that the divisor says.
struct Cursor {
  int64_t row, column;

  __device__ __forceinline__ Cursor(int64_t element, const WideDivisor& columns)
      : row(columns.divide(element)), column(element - row * columns.divisor) {}
  __device__ __forceinline__ void advance(const WideDivisor& columns) {
    if (++column < static_cast<int64_t>(columns.divisor)) return;
    column = 0;
    ++row;
  }
};

// A matrix's elements, eight by eight.
struct Octets {
  int64_t elements;
  WideDivisor columns;
  int64_t in_vectors;     // octets; none, or the whole ones
  Divisor row_in_octets;  // if they are in vectors

  __host__ __device__ __forceinline__ int64_t count() const {
    return (elements + kOctet - 1) / kOctet;
  }

  // The first element of an octet that is in a vector.
  template <class T>
  __device__ __forceinline__ char* at(const Matrix& m, uint32_t octet) const {
    const uint32_t row = row_in_octets.divide(octet);
    const uint32_t column = octet - row * row_in_octets.divisor;
    // Rows are less than 2^32 bytes apart: in 64 bits the product would take two instructions.
    const uint64_t before = uint64_t{row} * static_cast<uint32_t>(m.row_stride);
    return m.data + (before + uint64_t{column} * (kOctet * sizeof(T)));
  }
};

inline bool has_vectors(const Matrix& m, int64_t rows, int64_t size) {
  if (rows > 1 && m.row_stride > std::numeric_limits<uint32_t>::max()) return false;
  const auto bits = reinterpret_cast<uintptr_t>(m.data) | static_cast<uintptr_t>(m.row_stride);
  return m.column_stride == size && bits % kVectorBytes == 0;
}

inline bool has_vectors(const void* columns) {
  return reinterpret_cast<uintptr_t>(columns) % kVectorBytes == 0;
}

// `vectors` if both the matrices and whatever else is read have them.
inline Octets octets_of(int64_t rows, int64_t columns, bool vectors) {
  const int64_t elements = rows * columns, whole = elements / kOctet;
  Octets octets = {elements, WideDivisor(static_cast<uint64_t>(columns)), 0, Divisor(1)};
  const bool rows_are_whole = rows == 1 || columns % kOctet == 0;
  if (!vectors || !rows_are_whole || whole > std::numeric_limits<int32_t>::max()) return octets;
  octets.in_vectors = whole;
  octets.row_in_octets = Divisor(static_cast<uint32_t>((columns + kOctet - 1) / kOctet));
  return octets;
}

}  // namespace gelu_kernels::cuda
