// The list of core operators, with their kernels over a device.
#pragma once

#include "csrc/ops/gate/kernels.h"
#include "csrc/ops/glu/kernels.h"
#include "csrc/ops/soi/kernels.h"

namespace gelu_kernels {

using CoreOperators = Registry<GateForward, GateBackward, GateBackwardBias, GateDoubleBackward,
                               GluForward, GluBackward, GluHalvesForward, GluHalvesBackward,
                               SoiForward, SoiBackward, SoiBackwardBias>;

}  // namespace gelu_kernels
