// The results of a pass in eight bits: where their numbers and scales go.
//
// A pass computes a matrix y, rounded to the dtype of x, and quantises it: data = y/scale in eight
// bits. A result may be wanted along the rows of y, along its columns, or both.
#pragma once

#include <cstdint>

#include "csrc/gates/column_sums.h"
#include "csrc/gates/float8.h"

namespace gelu_kernels {

// The elements that share a scale, by the names of torch.nn.functional.ScalingType.
enum class Scaling { TensorWise, RowWise, BlockWise1x128, BlockWise1x32 };

constexpr int64_t kMxBlock = 32;      // of BlockWise1x32
constexpr int64_t kFloatBlock = 128;  // of BlockWise1x128

// Rows of a matrix whose blocks along the columns, and whose tiles of 128 rows, begin with its
// first row. All blocks and tiles of the groups before it come first.
struct RowGroup {
  int64_t begin, end;
  int64_t first_block;  // for RowWise a group is one block
  int64_t first_tile;

  GELU_KERNELS_HD int64_t tiles() const { return (end - begin + 127) / 128; }
};

// The groups of a matrix's rows, by their ends; rows after the last end are in no group. An end
// counts as at least the end before, and at most the number of rows.
struct RowGroups {
  const int32_t* ends;  // nullptr if all rows are one group
  int32_t count;        // 1 then
};

// The position of a scale, counted in scales: of a row of the matrix, and of a block of its row.
struct ScaleLayout {
  int64_t row_stride, column_stride;
  int64_t stride_of_four;  // from four blocks to the next four
  // The tiles in a row of SWIZZLE_32_4_4, where 128 rows of 4 scales are a tile of 512 bytes
  // (cuBLAS, "1D Block Scaling Factors Layout"). 0 if the layout is plain.
  int64_t tiles;
  int64_t row_tiles;  // above each other, likewise
  // Where this matrix begins in the matrix that owns the scales.
  int64_t first_row, first_column;
  int64_t first;  // scale

  // In 32 bits, if the numbers of rows and columns have no more, a GPU computes it sooner.
  template <class Index>
  GELU_KERNELS_HD int64_t place(Index row, Index column) const {
    row += static_cast<Index>(first_row);
    column += static_cast<Index>(first_column);
    const int64_t of_row = tiles == 0
                               ? row * row_stride
                               : row / 128 * tiles * 512 + row % 32 * 16 + row % 128 / 32 * 4;
    return first + of_row + column / 4 * stride_of_four + column % 4 * column_stride;
  }

  // Of the results along the rows: for the rows of a group.
  GELU_KERNELS_HD ScaleLayout of_rows(const RowGroup& group) const {
    ScaleLayout own = *this;
    if (tiles != 0) own.first_row += group.first_tile * 128 - group.begin;
    return own;
  }
  // Of the results along the columns, which are the rows here: for the blocks of a group, counted
  // from its first. Swizzled, the tiles of a group are together.
  GELU_KERNELS_HD ScaleLayout of_columns(const RowGroup& group) const {
    ScaleLayout own = *this;
    if (tiles == 0) {
      own.first_column += group.first_block;
    } else {
      own.first += group.first_tile * row_tiles * 512;
      own.tiles = group.tiles();
    }
    return own;
  }
};

// A matrix in eight bits whose blocks lie along its rows.
struct QuantizedMatrix {
  uint8_t* data;  // consecutive columns; nullptr if it is not wanted
  int64_t row_stride;
  char* scales;  // bytes if they are exponents, else floats
  ScaleLayout layout;
  // For RowWise with results along columns, which are computed twice: memory for the largest
  // magnitude of a scale, as the bits of a float, at first 0. That of block k of row i is number
  // i + k * rows. Else nullptr.
  uint32_t* amax;
};

// Of a result y, along its rows; and along its columns, which are the rows of this matrix.
struct QuantizedResult {
  QuantizedMatrix rows, columns;
};

constexpr int kMaxQuantizedResults = 2, kMaxQuantizedInputs = 3;

// Two results may be the halves of one matrix, with one scale for a row by RowWise: then their
// `scales` along the rows, and `amax`, are the same.
struct Quantization {
  bool is_e5m2;
  Scaling scaling;
  bool has_powers;     // the scales are powers of two, else amax/largest
  bool has_exponents;  // stored as bytes
  PowersOfTwo powers;
  float largest;       // number of the format
  const float* scale;  // of TensorWise: given by the caller
  float* amax;         // of TensorWise: at first 0, then the largest magnitude in the results
  RowGroups groups;
  QuantizedResult results[kMaxQuantizedResults];
};

// The passes whose results are quantised.
#define GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(_)           \
  _(forward)      /* y = g(x + bias); x, bias */          \
  _(backward)     /* dx = dy·g'(x + bias); dy, x, bias */ \
  _(glu_forward)  /* y = g(x)·up; x, up */                \
  _(glu_backward) /* dx, dup; dy, x, up */                \
  _(cast)         /* y = x, of any gate; x */

// One thing for each of them.
template <class T>
struct QuantizedPasses {
#define GELU_KERNELS_MEMBER(name) T name;
  GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(GELU_KERNELS_MEMBER)
#undef GELU_KERNELS_MEMBER
};

// The operands of a pass whose results are quantised: its inputs, and a bias along the columns, if
// there is one. Where partials are given, the sums of the columns of dx go there, as in ColumnSums:
// for blocks without groups. A gated linear unit is the general one of GluRows.
struct QuantizedOperands {
  Matrix in[kMaxQuantizedInputs];
  const char* bias;    // consecutive; nullptr if there is none
  const char* weight;  // of each row, likewise
  void* partials;      // likewise
  double limit;        // infinity if there is none
  double up_offset;    // -0 if there is none, which changes no sum
  int64_t rows, columns;
  Quantization quantization;
};

}  // namespace gelu_kernels
