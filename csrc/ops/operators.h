// The lists of operators.
#pragma once

#include "csrc/ops/cdf/cdf.h"
#include "csrc/ops/coded/coded.h"
#include "csrc/ops/dropout/dropout.h"
#include "csrc/ops/gate/gate.h"
#include "csrc/ops/glu/glu.h"
#include "csrc/ops/linear/linear.h"
#include "csrc/ops/quantized/backward.h"
#include "csrc/ops/quantized/quantized.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {

using PublicOperators =
    Registry<FusedGelu, FusedBiasGelu, FusedGate, FusedGlu, SoiMap, FusedBiasSoiMap, CdfGate,
             FusedBiasGeluDropout, FusedGateDropout, FusedGluDropout, DrawSeed, QuantizedGate,
             QuantizedGlu, GateLinear, GluLinear>;

using CoreOperators =
    Registry<GateForward, GateBackward, GateBackwardBias, GateDoubleBackward, GluForward,
             GluBackward, GluBackwardWeight, GluHalvesForward, GluHalvesBackward,
             GluHalvesBackwardWeight, SoiForward, SoiCdfForward, SoiBackward, SoiBackwardBias,
             CdfGateForward, CdfGateBackward, CodedForward, CodedBackward, CodedBackwardBias,
             GateDropoutForward, GateDropoutBackward, GateDropoutBackwardBias, GluDropoutForward,
             GluDropoutBackward, GluDropoutHalvesForward, GluDropoutHalvesBackward,
             QuantizedGateForward, QuantizedGluForward, QuantizedGateBackward,
             QuantizedGateBackwardBias, QuantizedGluBackward, QuantizedGluBackwardWeight,
             QuantizedGluHalvesBackward, QuantizedGluHalvesBackwardWeight>;

// Each is composed of core operators and torch's, but is one operator for autograd and compilers.
using ComposedOperators = Registry<GateLinearBackwardWeight, GluLinearBackwardWeight>;

}  // namespace gelu_kernels
