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

// The position of a block's scale, counted in scales.
struct ScaleLayout {
  int64_t row_stride, column_stride;
  // The tiles in a row of SWIZZLE_32_4_4, where 128 rows of 4 scales are a tile of 512 bytes
  // (cuBLAS, "1D Block Scaling Factors Layout"). 0 if the layout is plain.
  int64_t tiles;
  // Where this matrix begins in the matrix that owns the scales.
  int64_t first_row, first_column;

  // In 32 bits, if the numbers of rows and columns have no more, a GPU computes it sooner.
  template <class Index>
  GELU_KERNELS_HD int64_t place(Index row, Index column) const {
    row += static_cast<Index>(first_row);
    column += static_cast<Index>(first_column);
    if (tiles == 0) return row * row_stride + column * column_stride;
    const int64_t tile = row / 128 * tiles + column / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
  }
};

// A matrix in eight bits whose blocks lie along its rows.
struct QuantizedMatrix {
  uint8_t* data;  // consecutive columns; nullptr if it is not wanted
  int64_t row_stride;
  char* scales;  // bytes if they are powers of two, else floats
  ScaleLayout layout;
};

// Of a result y, along its rows; and along its columns, which are the rows of this matrix.
struct QuantizedResult {
  QuantizedMatrix rows, columns;
};

constexpr int kMaxQuantizedResults = 2, kMaxQuantizedInputs = 3;

struct Quantization {
  bool is_e5m2;
  Scaling scaling;
  BlockScaling blocks;  // of BlockWise1x32
  float largest;        // number of the format
  const float* scale;   // of TensorWise: given by the caller
  float* amax;          // of TensorWise: at first 0, then the largest magnitude in the results
  QuantizedResult results[kMaxQuantizedResults];
};

// The passes whose results are quantised.
#define GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(_)           \
  _(forward)      /* y = g(x + bias); x, bias */          \
  _(backward)     /* dx = dy·g'(x + bias); dy, x, bias */ \
  _(glu_forward)  /* y = g(x)·up; x, up */                \
  _(glu_backward) /* dx, dup; dy, x, up */

// One thing for each of them.
template <class T>
struct QuantizedPasses {
#define GELU_KERNELS_MEMBER(name) T name;
  GELU_KERNELS_FOR_EACH_QUANTIZED_PASS(GELU_KERNELS_MEMBER)
#undef GELU_KERNELS_MEMBER
};

// The operands of a pass whose results are quantised: its inputs, and a bias along the columns, if
// there is one. Where partials are given, the sums of the columns of dx go there, as in ColumnSums.
struct QuantizedOperands {
  Matrix in[kMaxQuantizedInputs];
  const char* bias;  // consecutive; nullptr if there is none
  void* partials;    // likewise
  int64_t rows, columns;
  Quantization quantization;
};

}  // namespace gelu_kernels
