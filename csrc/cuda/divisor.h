// Division of n < 2^31 by a number that the host knows, by a multiplication: Granlund and
// Montgomery, "Division by invariant integers using multiplication" (1994), figure 4.1.
#pragma once

#include <cstdint>

namespace gelu_kernels::cuda {

struct Divisor {
  uint32_t divisor, multiplier, shift;

  Divisor() = default;
  explicit Divisor(uint32_t d) : divisor(d), shift(0) {
    while ((uint64_t{1} << shift) < d) ++shift;
    const uint64_t scaled = ((uint64_t{1} << shift) - d) << 32;
    multiplier = static_cast<uint32_t>(scaled / d + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

}  // namespace gelu_kernels::cuda
