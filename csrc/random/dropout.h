// The operands of dropout's kernels: y = m g(x + bias) up k, m ~ Bernoulli(1 - p), k = 1/(1 - p).
// The mask has bit i % 8 of byte i / 8 for element i of the matrices in row-major order.
#pragma once

#include "csrc/gates/column_sums.h"
#include "csrc/random/philox.h"
#include "csrc/random/seed.h"

namespace gelu_kernels {

// p as the kernels take it: an element whose random word is below the threshold is dropped, and the
// others are multiplied by k.
struct Dropout {
  uint32_t threshold;
  Factor factor;
};

struct DropoutForwardOperands {
  Matrix y, x;
  Matrix up;         // or null: 1
  const char* bias;  // or null: 0; consecutive
  uint8_t* mask;     // unused bits of the last byte become 0
  Seed seed;
  GlobalIndex index;
  Dropout dropout;
  int64_t rows, columns;
};

// dx = m dy k up g'(x + bias) and, if there is an up, dup = m dy k g(x), which are +0 where m is 0.
struct DropoutBackwardOperands {
  Matrix dx, dup, dy, x, up;
  const char* bias;
  const uint8_t* mask;
  Factor factor;
  int64_t rows, columns;
};

}  // namespace gelu_kernels
