// The operands of the SOI map's kernels. The mask has bit i % 8 of byte i / 8 for element i of the
// matrices in row-major order.
#pragma once

#include "csrc/gates/column_sums.h"
#include "csrc/random/philox.h"
#include "csrc/random/seed.h"

namespace gelu_kernels {

// y = m (x + bias), or m x with a location and a scale in F, and the mask of m.
struct SoiForwardOperands {
  Matrix y, x;
  const char* bias;  // consecutive; null if there is none
  // One row; null if there are none. One number has a column stride of 0 and, for CUDA, as many
  // copies as an octet has elements.
  Matrix loc, scale;
  uint8_t* mask;  // unused bits of the last byte become 0
  Seed seed;
  GlobalIndex index;
  int64_t rows, columns;
};

// dx = dy where the mask is 1, else 0.
struct SoiBackwardOperands {
  Matrix dx, dy;
  const uint8_t* mask;
  int64_t rows, columns;
};

}  // namespace gelu_kernels
