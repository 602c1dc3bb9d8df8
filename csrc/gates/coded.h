// The operands of the kernels of a gate whose derivative is coded: forward writes the codes, and
// backward reads only the codes and dy.
#pragma once

#include "csrc/gates/codebook.h"
#include "csrc/gates/column_sums.h"
#include "csrc/random/philox.h"
#include "csrc/random/seed.h"

namespace gelu_kernels {

// y = g(x + bias) and the codes of g'(x + bias). With dropout, y is 0 where the random word is
// under the threshold, and the code is that of 0; elsewhere y is times the factor.
struct CodedForwardOperands {
  Matrix y, x;
  const char* bias;  // consecutive; null if there is none
  uint8_t* code;     // an unused half of the last byte becomes 0
  bool is_random;    // else there is no seed
  Seed seed;
  Codebook codebook;
  Rounding rounding;
  bool drops;
  uint32_t threshold;
  Factor factor;
  GlobalIndex index;
  int64_t rows, columns;
};

// dx = dy times the coded derivative.
struct CodedBackwardOperands {
  Matrix dx, dy;
  const uint8_t* code;
  Decoder decoder;
  int64_t rows, columns;
};

}  // namespace gelu_kernels
