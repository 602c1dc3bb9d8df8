// Gates of a logistic distribution function.
#pragma once

#include "csrc/gates/sigmoid.h"

namespace gelu_kernels {

// The sigmoid approximation of the GELU: x sigmoid(1.702 x).
struct Logistic1702 : SigmoidGate<Logistic1702Constants> {};

}  // namespace gelu_kernels
