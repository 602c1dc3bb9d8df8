// The CPU loops of gates whose derivative is coded, built once for each instruction set from
// coded_loops.cpp. They know no gate: a function of loops.h evaluates it, block by block. They know
// nothing of torch either; csrc/ops/coded/kernels.h brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/cpu/loops.h"
#include "csrc/gates/coded.h"

namespace gelu_kernels::cpu {

// Works on the elements from begin, a multiple of kMaskBlock, to end.
using CodedForward = void (*)(const CodedForwardOperands& m, Evaluate value_and_derivative,
                              int64_t begin, int64_t end);
using CodedBackward = void (*)(const CodedBackwardOperands& m, int64_t begin, int64_t end);

struct CodedLoops {
  CodedForward forward;
  CodedBackward backward;
  BackwardColumnSums backward_column_sums;
};

const CodedLoops& coded_loops(Dtype dtype, int64_t elements);

}  // namespace gelu_kernels::cpu
