// Ragged or strided operands pass through a buffer. The sources that include this are compiled once
// per instruction set, so everything here has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "csrc/gates/column_sums.h"

namespace gelu_kernels::cpu {
namespace {

// Every inner loop runs over a multiple of this many elements, a whole number of vectors in any
// dtype and instruction set. There is no scalar remainder: ragged ends are padded in a buffer.
constexpr int64_t kVector = 32;

// How many vectors the hot loops compute at a time (see CMakeLists.txt). Processors from before
// 2013 have no fused multiply-add and compute one: with four the loops are 10 MB of code in place
// of 2, and take three times as long to compile.
#ifdef __FP_FAST_FMAF
constexpr int kUnroll = 4;
#else
constexpr int kUnroll = 1;
#endif

constexpr int64_t round_up(int64_t n, int64_t multiple = kVector) {
  return (n + multiple - 1) & ~(multiple - 1);
}

template <class T>
void copy(Matrix to, Matrix from, int64_t columns, int64_t rows) {
  constexpr int64_t size = sizeof(T);
  const bool contiguous = to.column_stride == size && from.column_stride == size;
  for (int64_t i = 0; i < rows; ++i) {
    char* to_row = to.data + i * to.row_stride;
    const char* from_row = from.data + i * from.row_stride;
    if (contiguous) {
      memcpy(to_row, from_row, static_cast<size_t>(columns * size));
    } else {
      for (int64_t j = 0; j < columns; ++j) {
        memcpy(to_row + j * to.column_stride, from_row + j * from.column_stride, sizeof(T));
      }
    }
  }
}

// A buffer as a matrix of consecutive rows.
template <class T>
Matrix row_of(T* buffer, int64_t columns) {
  return {reinterpret_cast<char*>(buffer), sizeof(T), columns * int64_t{sizeof(T)}};
}

}  // namespace
}  // namespace gelu_kernels::cpu
