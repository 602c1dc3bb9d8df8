// Philox for consecutive groups, a vector of them at a time. For a source that is compiled once for
// each instruction set: all of it has internal linkage.
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
constexpr int64_t kPhiloxGroups = kPhiloxLanes * kPhiloxVectors;

// A group to a lane of 64 bits. A word of a counter is the low half of its lane; what is in the
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

// Words of consecutive groups, in order.
class PhiloxGroups {
 public:
  explicit PhiloxGroups(uint64_t seed) {
    for (int lane = 0; lane < kPhiloxLanes; ++lane) iota_[lane] = static_cast<uint64_t>(lane);
    uint32_t key_0 = static_cast<uint32_t>(seed), key_1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < Philox::rounds; ++round) {
      key_0_[round] = PhiloxLanes{} + key_0;
      key_1_[round] = PhiloxLanes{} + key_1;
      key_0 += Philox::key_step_0;
      key_1 += Philox::key_step_1;
    }
  }

  // Of n groups, a multiple of kPhiloxGroups.
  void draw(uint32_t* words, int64_t n, uint64_t group) const {
    for (int64_t i = 0; i < n; i += kPhiloxGroups) {
      PhiloxLanes c0[kPhiloxVectors], c1[kPhiloxVectors], c2[kPhiloxVectors], c3[kPhiloxVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kPhiloxVectors; ++v) {
        c0[v] = iota_ + (group + static_cast<uint64_t>(i + v * kPhiloxLanes));
        c1[v] = c0[v] >> 32;
        c2[v] = c3[v] = PhiloxLanes{};
      }
#pragma GCC unroll 10
      for (int round = 0; round < Philox::rounds; ++round) {
#pragma GCC unroll 4
        for (int v = 0; v < kPhiloxVectors; ++v) {
          const PhiloxLanes product_0 =
              multiply_low_halves(c0[v], PhiloxLanes{} + Philox::multiplier_0);
          const PhiloxLanes product_2 =
              multiply_low_halves(c2[v], PhiloxLanes{} + Philox::multiplier_2);
          c0[v] = product_2 >> 32 ^ c1[v] ^ key_0_[round];
          c2[v] = product_0 >> 32 ^ c3[v] ^ key_1_[round];
          c1[v] = product_2;
          c3[v] = product_0;
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kPhiloxVectors; ++v) {
        store(words + 4 * (i + v * kPhiloxLanes), (c0[v] & 0xffffffff) | c1[v] << 32,
              (c2[v] & 0xffffffff) | c3[v] << 32);
      }
    }
  }

 private:
  // Of each group words 0 and 1 come in one vector, words 2 and 3 in the other.
  static void store(uint32_t* words, PhiloxLanes c01, PhiloxLanes c23) {
    PhiloxLanes low, high;
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      low[lane] = static_cast<uint64_t>(lane / 2 + lane % 2 * kPhiloxLanes);
      high[lane] = low[lane] + kPhiloxLanes / 2;
    }
    low = __builtin_shuffle(c01, c23, low);
    high = __builtin_shuffle(c01, c23, high);
    memcpy(words, &low, sizeof low);
    memcpy(words + 2 * kPhiloxLanes, &high, sizeof high);
  }

  PhiloxLanes iota_, key_0_[Philox::rounds], key_1_[Philox::rounds];
};

}  // namespace
}  // namespace gelu_kernels::cpu
