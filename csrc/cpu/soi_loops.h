// The CPU loops of the SOI map, built once for each instruction set from soi_loops.cpp. They know
// nothing of torch; csrc/ops/soi/kernels.h brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/cpu/loops.h"
#include "csrc/gates/gates.h"
#include "csrc/random/soi.h"

namespace gelu_kernels::cpu {

// Works on the elements from begin to end.
using SoiForward = void (*)(const SoiForwardOperands& m, int64_t begin, int64_t end);
using SoiBackward = void (*)(const SoiBackwardOperands& m, int64_t begin, int64_t end);

// counts[i] = how many of the 2^32 random words, the least ones, have -|x[i]| in the tail.
using CountInTail = void (*)(uint32_t* counts, const float* x, int64_t n);

struct SoiLoops {
  SoiForward forward;
  SoiForward cdf_forward;  // with a location and a scale
  SoiBackward backward;
  BackwardColumnSums backward_column_sums;
  CountInTail count_in_tail;
};

const SoiLoops& soi_loops(Gate gate, Dtype dtype, int64_t elements);

}  // namespace gelu_kernels::cpu
