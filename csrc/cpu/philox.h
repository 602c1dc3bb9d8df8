// Philox for consecutive octets, a vector of them at a time. For sources compiled once per
// instruction set, so everything here has internal linkage.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "csrc/random/philox.h"

namespace gelu_kernels::cpu {
namespace {

// Several vectors are drawn in step, as many as there are registers for: a round is a chain of
// operations that each wait for the last.
#if defined(__AVX512F__)
constexpr int kPhiloxLanes = 8, kPhiloxVectors = 4;
#elif defined(__AVX2__)
constexpr int kPhiloxLanes = 4, kPhiloxVectors = 2;
#else
constexpr int kPhiloxLanes = 2, kPhiloxVectors = 2;
#endif
constexpr int64_t kPhiloxOctets = kPhiloxLanes * kPhiloxVectors;

// An octet to a lane of 64 bits. A word of a counter is the low half of its lane; what is in the
// high half does not matter.
typedef uint64_t PhiloxLanes __attribute__((vector_size(8 * kPhiloxLanes)));

// g++ does not find this instruction: for 64-bit products it takes three multiplications.
GELU_KERNELS_HD PhiloxLanes multiply_low_halves(PhiloxLanes a, PhiloxLanes b) {
#if defined(__AVX512F__)
  return (PhiloxLanes)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (PhiloxLanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (PhiloxLanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

// The two halves of each lane in the other order.
GELU_KERNELS_HD PhiloxLanes swap_halves(PhiloxLanes a) {
  typedef uint32_t Halves __attribute__((vector_size(8 * kPhiloxLanes)));
  Halves order;
  for (int half = 0; half < 2 * kPhiloxLanes; ++half) order[half] = static_cast<uint32_t>(half ^ 1);
  return (PhiloxLanes)__builtin_shuffle((Halves)a, order);
}

// Words of consecutive octets, in order.
class PhiloxOctets {
 public:
  explicit PhiloxOctets(uint64_t seed) {
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      order_[lane] = static_cast<uint64_t>(lane / 2 + lane % 2 * (kPhiloxLanes / 2));
    }
    uint32_t key_0 = static_cast<uint32_t>(seed), key_1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < Philox::rounds; ++round) {
      key_0_[round] = PhiloxLanes{} + key_0;
      key_1_[round] = PhiloxLanes{} + key_1;
      key_0 += Philox::key_step_0;
      key_1 += Philox::key_step_1;
    }
  }

  // The words of a part of kPhiloxOctets octets from `octet` on, a multiple of kPhiloxOctets: the
  // counters differ in the lowest word alone. So one of the two products of each of the first two
  // rounds is the same for all, and they are taken apart: that and the order of the lanes save a
  // fifth.
  template <uint32_t part>
  GELU_KERNELS_HD void draw(char* words, uint64_t octet) const {
    constexpr uint64_t product_of_part = uint64_t{Philox::multiplier_2} * part;
    const PhiloxLanes multiplier_0 = PhiloxLanes{} + Philox::multiplier_0;
    const PhiloxLanes multiplier_2 = PhiloxLanes{} + Philox::multiplier_2;
    const PhiloxLanes common = multiply_low_halves(
        (PhiloxLanes{} + (octet >> 32 ^ product_of_part >> 32)) ^ key_0_[0], multiplier_0);
    PhiloxLanes c0[kPhiloxVectors], c1[kPhiloxVectors], c2[kPhiloxVectors], c3[kPhiloxVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPhiloxVectors; ++v) {
      const PhiloxLanes counter = order_ + (octet + static_cast<uint64_t>(v * kPhiloxLanes));
      const PhiloxLanes product_0 = multiply_low_halves(counter, multiplier_0);
      const PhiloxLanes product_2 = multiply_low_halves(product_0 >> 32 ^ key_1_[0], multiplier_2);
      c0[v] = product_2 >> 32 ^ (product_of_part ^ key_0_[1]);
      c2[v] = product_0 ^ (common >> 32 ^ key_1_[1]);
      c1[v] = product_2;
      c3[v] = common;
    }
#pragma GCC unroll 4
    for (int round = 2; round < last_round; ++round) {
#pragma GCC unroll 4
      for (int v = 0; v < kPhiloxVectors; ++v) {
        const PhiloxLanes product_0 = multiply_low_halves(c0[v], multiplier_0);
        const PhiloxLanes product_2 = multiply_low_halves(c2[v], multiplier_2);
        c0[v] = product_2 >> 32 ^ c1[v] ^ key_0_[round];
        c2[v] = product_0 >> 32 ^ c3[v] ^ key_1_[round];
        c1[v] = product_2;
        c3[v] = product_0;
      }
    }
    // The last round makes both halves of each lane, word 0 or 2 the low one.
#pragma GCC unroll 4
    for (int v = 0; v < kPhiloxVectors; ++v) {
      const PhiloxLanes product_0 = multiply_low_halves(c0[v], multiplier_0);
      const PhiloxLanes product_2 = multiply_low_halves(c2[v], multiplier_2);
      store(words + 16 * v * kPhiloxLanes,
            swap_halves(product_2) ^ ((c1[v] ^ key_0_[last_round]) & 0xffffffff),
            swap_halves(product_0) ^ ((c3[v] ^ key_1_[last_round]) & 0xffffffff));
    }
  }

 private:
  static constexpr int last_round = Philox::rounds - 1;

  // Of each octet words 0 and 1 come in one vector, words 2 and 3 in the other.
  GELU_KERNELS_HD static void store(char* words, PhiloxLanes c01, PhiloxLanes c23) {
    PhiloxLanes even, odd;
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      even[lane] = static_cast<uint64_t>(lane / 2 * 2 + lane % 2 * kPhiloxLanes);
      odd[lane] = even[lane] + 1;
    }
    even = __builtin_shuffle(c01, c23, even);
    odd = __builtin_shuffle(c01, c23, odd);
    memcpy(words, &even, sizeof even);
    memcpy(words + sizeof even, &odd, sizeof odd);
  }

  // Which octet is in which lane: 0, 4, 1, 5, 2, 6, 3, 7. So store() takes but an unpacking of the
  // even lanes and one of the odd ones.
  PhiloxLanes order_, key_0_[Philox::rounds], key_1_[Philox::rounds];
};

}  // namespace
}  // namespace gelu_kernels::cpu
