// Division of n < 2^31, or 2^63, by a number that the host knows, by a multiplication: Granlund and
// Montgomery, "Division by invariant integers using multiplication" (1994), figure 4.1.
#pragma once

#include <cstdint>

namespace gelu_kernels::cuda {

template <class Word, class Product>
struct Division {
  Word divisor, multiplier;
  uint32_t shift;

  Division() = default;
  explicit Division(Word d) : divisor(d), shift(0) {
    while ((Product{1} << shift) < d) ++shift;
    const Product scaled = ((Product{1} << shift) - d) << (8 * sizeof(Word));
    multiplier = static_cast<Word>(scaled / d + 1);
  }
  __device__ __forceinline__ Word divide(Word n) const {
    return (high_product(n, multiplier) + n) >> shift;
  }

 private:
  static __device__ __forceinline__ uint32_t high_product(uint32_t a, uint32_t b) {
    return __umulhi(a, b);
  }
  static __device__ __forceinline__ uint64_t high_product(uint64_t a, uint64_t b) {
    return __umul64hi(a, b);
  }
};

struct Divisor : Division<uint32_t, uint64_t> {
  using Division::Division;
};
struct WideDivisor : Division<uint64_t, unsigned __int128> {
  using Division::Division;
};

}  // namespace gelu_kernels::cuda
