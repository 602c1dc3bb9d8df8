// The SiLU: x sigmoid(x).
#pragma once

#include "csrc/gates/logistic_of_cubic.h"

namespace gelu_kernels {

struct Logistic : LogisticOfCubic<LogisticConstants> {
  static constexpr Ties ties = Ties::kAny;
};

}  // namespace gelu_kernels
