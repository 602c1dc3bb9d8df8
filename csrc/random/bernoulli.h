// The mask of the SOI map: m ~ Bernoulli(F(x)), F the distribution function of a gate.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// F(-|x|) as a fraction of 2^32. It is even, because processors have an instruction that makes a
// signed integer of a float. Beyond the end of F's tail, and for NaN, it is 0.
template <class Gate>
GELU_KERNELS_HD uint32_t threshold(float x) {
  return static_cast<uint32_t>(static_cast<int32_t>(Gate::tail(x) * 0x1p31f)) << 1;
}

// m for 32 random bits. With T = threshold(x), its probability is T/2^32 for x <= 0, and 1 - T/2^32
// for x > 0. NaN is always kept.
template <class Gate>
GELU_KERNELS_HD bool bernoulli(float x, uint32_t random) {
  return (random < threshold<Gate>(x)) != !(x <= 0);
}

}  // namespace gelu_kernels
