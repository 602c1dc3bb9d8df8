// The order in which a bias gradient is summed. It depends on the shape alone, so the sum has the
// same bits on every processor.
//
// Rows fall into blocks. The rows of a block are dealt out in turn to kRowLanes sums, which are
// then added in order to the block's partial sum; the blocks are dealt out to kBlockLanes sums
// likewise.
#pragma once

#include <cstdint>

#include "csrc/gates/arithmetic.h"
#include "csrc/gates/codebook.h"
#include "csrc/gates/factor.h"

namespace gelu_kernels {

constexpr int kRowLanes = 8;
constexpr int kBlockLanes = 32;

// Up to 256 rows a block keep the partial sums under 1/128 of the data and the error of a sum in
// float small; 33 to 64 blocks, times the tiles of columns, feed a processor. The rows of a block
// are a power of two, at least 32: no block of 32 or 128 numbers of a column, which share a scale,
// is cut.
struct RowBlocks {
  explicit RowBlocks(int64_t rows) : block_rows(32) {
    while (block_rows < 256 && block_rows * 64 < rows) block_rows *= 2;
    count = (rows + block_rows - 1) / block_rows;
  }
  int64_t block_rows, count;
};

// A matrix in memory; strides in bytes.
struct Matrix {
  char* data;
  int64_t column_stride;
  int64_t row_stride;
};

// The part of a matrix from a row and a column on.
GELU_KERNELS_HD Matrix tile_at(const Matrix& m, int64_t row, int64_t column) {
  return {m.data + row * m.row_stride + column * m.column_stride, m.column_stride, m.row_stride};
}

// dx, and partials[k][block][j] = the sum over a block of rows of column j of a term, in float
// (double for float64). dx = dy·g'(x + bias), or dy where a mask is 1, or both and times the
// factor, or dy times the coded derivative and the factor, and the one term is the unrounded dx; or
// csrc/gates/cdf.h has dx and the terms of loc and scale.
struct ColumnSums {
  Matrix dx, dy;
  Matrix x;                   // or null
  const char* parameters[2];  // the bias, or loc and scale; consecutive, like partials
  const uint8_t* mask;        // a bit for each element in row-major order, eight in a byte
  void* partials[2];
  char* sums[2];  // of the partials, as in PartialSums; null where they are not wanted
  int64_t rows, columns;
  Factor factor = 1;
  const uint8_t* code = nullptr;  // of the codebook, for each element in row-major order
  Codebook codebook = {};
};

// sums[j] = the sum over the blocks of partial[block][j], rounded to the dtype of the sums.
struct PartialSums {
  const void* partial;
  int64_t blocks, columns;
  char* sums;
};

}  // namespace gelu_kernels
