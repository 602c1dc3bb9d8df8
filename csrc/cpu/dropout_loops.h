// The CPU loops of dropout, built once for each instruction set from dropout_loops.cpp. They know
// no gate: a function of loops.h evaluates it, block by block. They know nothing of torch either;
// csrc/ops/dropout/kernels.h brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/cpu/loops.h"
#include "csrc/random/dropout.h"

namespace gelu_kernels::cpu {

// Works on the elements from begin to end.
using DropoutForward = void (*)(const DropoutForwardOperands& m, Evaluate value, int64_t begin,
                                int64_t end);
using DropoutBackward = void (*)(const DropoutBackwardOperands& m, Evaluate evaluate, int64_t begin,
                                 int64_t end);

// As BackwardColumnSums.
using DropoutColumnSums = void (*)(const ColumnSums& m, Evaluate derivative, int64_t row,
                                   int64_t column, int64_t place, int64_t columns, int64_t rows);

struct DropoutLoops {
  DropoutForward forward;
  DropoutBackward backward;      // by the derivative
  DropoutBackward glu_backward;  // by both, the value and the derivative
  DropoutColumnSums backward_column_sums;
};

const DropoutLoops& dropout_loops(Dtype dtype, int64_t elements);

}  // namespace gelu_kernels::cpu
