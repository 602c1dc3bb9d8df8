// The mask of the SOI map: m ~ Bernoulli(F(x)), F the distribution function of a gate.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// m for 32 random bits, as an integer rounded to a float. Where 2^32 F(-|x|) < 1, no number is in
// the tail. NaN is kept.
template <class Gate, class Real>
GELU_KERNELS_HD auto bernoulli(Real x, Real random) {
  return Gate::in_tail(x, random) != is_positive_or_nan(x);
}
template <class Gate>
GELU_KERNELS_HD bool bernoulli(double x, double random) {
  return bernoulli<Gate>(static_cast<float>(x), static_cast<float>(random));
}
template <class Gate>
GELU_KERNELS_HD bool bernoulli(float x, uint32_t random) {
  return bernoulli<Gate>(x, static_cast<float>(random));
}

}  // namespace gelu_kernels
