// The tanh approximation of the GELU: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which is
// x sigmoid(v(x)) with v(x) = 2 sqrt(2/pi) (x + 0.044715 x^3).
#pragma once

#include "csrc/gates/logistic_of_cubic.h"

namespace gelu_kernels {

struct NormalTanh : LogisticOfCubic<NormalTanhConstants> {};

}  // namespace gelu_kernels
