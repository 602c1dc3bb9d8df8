// The sigmoid approximation of the GELU: x sigmoid(1.702 x).
#pragma once

#include "csrc/gates/logistic_of_cubic.h"

namespace gelu_kernels {

struct Logistic1702 : LogisticOfCubic<Logistic1702Constants> {};

}  // namespace gelu_kernels
