// The operands of the general gated linear unit, and the order in which the gradient of its weights
// is summed. It depends on the shape alone, so the sum has the same bits on every processor.
//
// A weight belongs to a row, and its gradient is a sum over the row. Column j belongs to lane
// j % kGluLanes. Each lane sums its columns in turn, from +0 on; then neighbours are added, lanes 0
// and 1, 2 and 3, ..., and so on with the halves as many sums, until there is one.
#pragma once

#include <cstdint>

#include "csrc/gates/column_sums.h"

namespace gelu_kernels {

constexpr int kGluLanes = 256;

struct GluRows {
  Matrix operands[5];  // y, x, up; or dx, dup, dy, x, up
  const char* weight;  // of each row, consecutive; 1 if there is none
  char* dweight;       // likewise, in a backward pass that is to write it
  double limit, up_offset;
  int64_t rows, columns;
};

}  // namespace gelu_kernels
