// The mask of the SOI map: m ~ Bernoulli(F(x)), F the distribution function of a gate.
#pragma once

#include "csrc/gates/arithmetic.h"
#include "csrc/random/philox.h"

namespace gelu_kernels {

// m for 32 random bits: whether they are below 2^32 F(x). For x > 0 that is whether their
// complement is not in the tail. Where 2^32 F(-|x|) < 1, no number is in the tail. NaN is kept.
template <class Gate>
GELU_KERNELS_HD bool bernoulli(float x, uint32_t word) {
  const bool positive = is_positive_or_nan(x);
  return Gate::in_tail(x, static_cast<float>(positive ? ~word : word)) != positive;
}

}  // namespace gelu_kernels
