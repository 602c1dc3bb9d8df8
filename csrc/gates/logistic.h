// The SiLU: x sigmoid(x).
#pragma once

#include "csrc/gates/logistic_of_cubic.h"

namespace gelu_kernels {

struct Logistic : LogisticOfCubic<LogisticConstants> {
  // A few of the hardest 16-bit values come out as ties: see Storage<fp16>.
  static constexpr bool may_tie = true;
};

}  // namespace gelu_kernels
