// The mask of the SOI map: m ~ Bernoulli(F(x)), F the distribution function of a gate.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// m for 32 random bits. Where 2^32 F(-|x|) < 1, no number is in the tail. NaN is kept.
template <class Gate>
GELU_KERNELS_HD bool bernoulli(float x, uint32_t random) {
  return Gate::in_tail(x, static_cast<float>(random)) != !(x <= 0);
}

}  // namespace gelu_kernels
