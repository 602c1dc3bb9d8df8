// Numbers to eight bits, and the scales of their powers.
#pragma once

#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

// The first number is in the low byte.
template <class Format>
__device__ __forceinline__ uint16_t round_to_bytes(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t pair;
  if constexpr (std::is_same_v<Format, e4m3fn>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return to_float8<Format>(low) | to_float8<Format>(high) << 8;
#endif
}
template <class Format>
__device__ __forceinline__ uint32_t round_to_bytes(float a, float b, float c, float d) {
  uint32_t word;  // ptxas makes it part of the second conversion
  asm("mov.b32 %0, {%1, %2};"
      : "=r"(word)
      : "h"(round_to_bytes<Format>(a, b)), "h"(round_to_bytes<Format>(c, d)));
  return word;
}

// A vector in eight bits.
template <class Precision>
struct Bytes {
  static constexpr int size = Vector<Precision>::size;
  using Words = std::conditional_t<size == 8, uint2, uint32_t>;

  Words words;

  template <class Format>
  static __device__ __forceinline__ Bytes round(const float (&x)[size]) {
    const uint32_t first = round_to_bytes<Format>(x[0], x[1], x[2], x[3]);
    if constexpr (size == 8) return {{first, round_to_bytes<Format>(x[4], x[5], x[6], x[7])}};
    if constexpr (size == 4) return {first};
  }
  __device__ __forceinline__ void store(uint8_t* to) const {
    *reinterpret_cast<Words*>(to) = words;
  }
};

// The scales of a word's magnitudes as PowersOfTwo has them, and their inverses in a word: a power
// of two is a bfloat16.
template <class Precision>
struct MxScales {
  using M = Magnitudes<Precision>;

  uint32_t scales[M::per_word];
  uint32_t inverses;

  __device__ __forceinline__ MxScales(const PowersOfTwo& powers, uint32_t word) {
    if constexpr (M::per_word == 2) {
      const auto both = [](uint32_t x) { return x << 16 | x; };
      const uint32_t magnitudes = word & M::kept;
      const uint32_t exponents = (magnitudes + both(powers.round_up >> 16)) >> 7 & both(0x1ff);
      const uint32_t least = both(powers.largest_exponent);
      const uint32_t of_both = __vmaxu2(exponents, least) - least;
      scales[0] = of_both & 0xffff;
      scales[M::per_word - 1] = of_both >> 16;
      inverses = both(254 << 7) - (of_both << 7);
      const bool is_finite = ((magnitudes + both(0x80)) & both(0x8000)) == 0;
      if (__all_sync(kAllLanes, is_finite)) return;
    }
    uint32_t of_each[M::per_word];
#pragma unroll
    for (int k = 0; k < M::per_word; ++k) {
      scales[k] = powers.scale_of(M::bits_of(word, k));
      of_each[k] = bits(powers.inverse_of(scales[k]));
    }
    inverses =
        M::per_word == 2 ? __byte_perm(of_each[0], of_each[M::per_word - 1], 0x7632) : of_each[0];
  }
};

// FloatScale and inverse_of_given, without the function that the compiler's division calls: the
// quotients of significands, times powers of two, which is exact.
__device__ __forceinline__ FloatScale float_scale_of(uint32_t amax, float largest) {
  constexpr uint32_t one = 0x3f800000, infinity = 0x7f800000;
  const float significand = from_bits((amax & 0x7fffff) | one);
  const int exponent = static_cast<int>(amax & infinity) - static_cast<int>(one);
  const int scale = static_cast<int>(bits(quotient(significand, largest))) + exponent;
  const int inverse = static_cast<int>(bits(quotient(largest, significand))) - exponent;
  const bool is_least = scale < 1 << 23;
  FloatScale found;
  found.scale = is_least ? FloatScale::least : from_bits(static_cast<uint32_t>(scale));
  found.inverse = is_least ? 1 / FloatScale::least : from_bits(static_cast<uint32_t>(inverse));
  if (amax >= infinity) {
    found.scale = from_bits(amax);
    found.inverse = amax == infinity ? 0.0f : from_bits(amax);
  }
  return found;
}

// A scale as it is stored, in the bits of a float or as an exponent, and its inverse.
struct StoredScale {
  uint32_t stored;
  float inverse;

  // For the bits of the largest magnitude.
  static __device__ __forceinline__ StoredScale of(const Quantization& q, uint32_t amax) {
    if (q.has_powers) {
      const uint32_t scale = q.powers.scale_of(amax);
      return {q.has_exponents ? scale : bits(PowersOfTwo::value_of(scale)),
              q.powers.inverse_of(scale)};
    }
    const FloatScale found = float_scale_of(amax, q.largest);
    return {bits(found.scale), found.inverse};
  }
  __device__ __forceinline__ void store(const Quantization& q, char* scales, int64_t place) const {
    if (q.has_exponents) {
      scales[place] = static_cast<char>(stored);
    } else {
      reinterpret_cast<uint32_t*>(scales)[place] = stored;
    }
  }
};

__device__ __forceinline__ float inverse_of_scale(float scale) {
  const float factor = scale > 0x1p64f ? 0x1p-64f : scale < 0x1p-64f ? 0x1p64f : 1.0f;
  float inverse = reciprocal(scale * factor) * factor;
  if (scale > 0x1p126f) {  // a subnormal number was rounded twice: the next one may be nearer
    const float rest = fma(-inverse, scale, 1.0f), half_unit = scale * 0x1p-75f * 0x1p-75f;
    inverse = from_bits(bits(inverse) + (rest > half_unit) - (rest < -half_unit));
  }
  return !(scale > 0) ? from_bits(0x7fc00000u) : at_most(inverse, Format<float>::largest);
}

__device__ __forceinline__ float low_of(uint32_t pair) { return from_bits(pair << 16); }
__device__ __forceinline__ float high_of(uint32_t pair) { return from_bits(pair & 0xffff0000); }

// The products of two words' numbers. A product of bfloat16 must be exact, or subnormal.
template <class Precision>
__device__ __forceinline__ void multiply(uint32_t a, uint32_t b,
                                         float (&product)[Magnitudes<Precision>::per_word]) {
  if constexpr (!is_half<Precision>) {
    product[0] = from_bits(a) * from_bits(b);
  } else {
#if __CUDA_ARCH__ >= 1000
    const uint16_t of_a[] = {static_cast<uint16_t>(a), static_cast<uint16_t>(a >> 16)};
    const uint16_t of_b[] = {static_cast<uint16_t>(b), static_cast<uint16_t>(b >> 16)};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      asm("fma.rn.f32.bf16 %0, %1, %2, %3;"
          : "=f"(product[k])
          : "h"(of_a[k]), "h"(of_b[k]), "f"(-0.0f));
    }
#else
    uint32_t pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(0x80008000));
    product[0] = low_of(pair);
    product[1] = high_of(pair);
#endif
  }
}

}  // namespace gelu_kernels::cuda
