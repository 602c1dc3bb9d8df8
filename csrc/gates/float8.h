// Eight-bit floating-point numbers and the scales of their blocks: OCP, "8-bit Floating Point
// Specification" 1.0 (2023) and "Microscaling Formats (MX) Specification" 1.0 (2023).
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// The bits of the largest finite number, that number, and the exponent of the largest power of two.
struct e4m3fn {
  static constexpr int mantissa_bits = 3, bias = 7;
  static constexpr uint32_t largest_bits = 0x7e;
  static constexpr float largest = 448;
  static constexpr uint32_t largest_exponent = 8;
};
struct e5m2 {
  static constexpr int mantissa_bits = 2, bias = 15;
  static constexpr uint32_t largest_bits = 0x7b;
  static constexpr float largest = 57344;
  static constexpr uint32_t largest_exponent = 15;
};

// Rounds to nearest, ties to even. Numbers beyond the largest finite one, infinity too, become
// that one; every NaN becomes 0x7f. A GPU's cvt.rn.satfinite does the same.
//
// Where there is no NaN, `may_be_nan` saves some time.
template <class Format, bool may_be_nan = true>
GELU_KERNELS_HD uint8_t to_float8(float x) {
  constexpr int dropped = 23 - Format::mantissa_bits;
  constexpr uint32_t least_normal = (128 - Format::bias) << 23;
  // This float and a subnormal number have the same last place.
  constexpr uint32_t aligned = (127 + dropped + 1 - Format::bias) << 23;
  const uint32_t u = bits(x) & 0x7fffffff;
  const uint32_t half = (1 << (dropped - 1)) - 1 + (u >> dropped & 1);
  const uint32_t normal = (u - (least_normal - (1 << 23)) + half) >> dropped;
  const uint32_t subnormal = bits(from_bits(u) + from_bits(aligned)) - aligned;
  const uint32_t rounded = u < least_normal ? subnormal : normal;
  const uint32_t finite = rounded < Format::largest_bits ? rounded : Format::largest_bits;
  const bool is_nan = may_be_nan && u > 0x7f800000;
  return static_cast<uint8_t>(is_nan ? 0x7f : finite | (bits(x) >> 24 & 0x80));
}

// How a scale that is a power of two, 2^(s - 127) with s in eight bits, follows from the largest
// magnitude. "floor" takes the power of two in amax over the largest one of the format, as the
// MX specification does (6.3); with it, the largest numbers may saturate. "rceil" takes amax
// over the format's largest number, rounded up to a power of two, so that nothing saturates
// (cuBLAS, "1D Block Quantization"). 448 = 1.75·2^8 and 57344 = 1.75·2^15: so that is the exponent
// of amax, and one more above 1.75 times a power of two.
struct PowersOfTwo {
  uint32_t round_up;  // added to the bits of amax before its exponent is taken
  uint32_t largest_exponent;
  uint32_t least;           // of the scales: 0, or 1 where they are to be normal floats
  uint32_t of_infinity;     // the scale if amax is infinite
  uint32_t inverse_of_nan;  // the bits of the factor for numbers with a NaN, whose scale is NaN

  PowersOfTwo() = default;
  PowersOfTwo(uint32_t largest_exponent, bool rounds_up, bool is_mx)
      : round_up(rounds_up ? 0x1fffff : 0),
        largest_exponent(largest_exponent),
        least(is_mx ? 0 : 1),
        of_infinity(rounds_up ? 254 : 255 - largest_exponent),
        inverse_of_nan(rounds_up || !is_mx ? 0x7fc00000 : 0) {}

  // amax as the bits of a float; a NaN has the largest bits.
  GELU_KERNELS_HD uint32_t scale_of(uint32_t amax) const {
    const uint32_t exponent = (amax + round_up) >> 23, lowest = largest_exponent + least;
    const uint32_t finite = (exponent > lowest ? exponent : lowest) - largest_exponent;
    return amax < 0x7f800000 ? finite : amax == 0x7f800000 ? of_infinity : 255;
  }
  // 1/2^(s - 127), by which the numbers are multiplied.
  GELU_KERNELS_HD float inverse_of(uint32_t scale) const {
    const uint32_t normal = (254 - scale) << 23;
    return from_bits(scale < 254 ? normal : scale == 254 ? 0x400000 : inverse_of_nan);
  }
  // The scale as a float, which is normal or NaN.
  static GELU_KERNELS_HD float value_of(uint32_t scale) {
    return from_bits(scale == 255 ? 0x7fc00000 : scale << 23);
  }
};

// A scale that is a float, amax over the format's largest number, and its inverse. The
// scale is at least `least`, as for a row of zeros, so that the inverse does not overflow.
struct FloatScale {
  static constexpr float least = Format<float>::smallest_normal;
  float scale, inverse;

  FloatScale() = default;
  GELU_KERNELS_HD FloatScale(float amax, float largest) {
    const float quotient = amax / largest;
    const bool is_least = quotient < least;
    scale = is_least ? least : quotient;
    inverse = is_least ? 1 / least : largest / amax;
  }
};

// The inverse of a scale that a caller gives, which is to be positive: NaN if it is not.
GELU_KERNELS_HD float inverse_of_given(float scale) {
  return !(scale > 0) ? from_bits(0x7fc00000u) : at_most(1 / scale, Format<float>::largest);
}

}  // namespace gelu_kernels
