// The CPU loops of the gated linear unit in general, built once for each instruction set from
// glu_loops.cpp. They know nothing of torch; csrc/ops/glu/kernels.h brings the tensors and threads.
#pragma once

#include <cstdint>

#include "csrc/gates/gates.h"
#include "csrc/gates/glu_rows.h"

namespace gelu_kernels::cpu {

// Works on part of a row from a column on, or on the whole row if there is a dweight.
using GluRowLoop = void (*)(const GluRows& m, int64_t row, int64_t column, int64_t columns);

struct GluLoops {
  GluRowLoop forward, backward;
};

const GluLoops& glu_loops(Gate gate, Dtype dtype, int64_t elements);

}  // namespace gelu_kernels::cpu
