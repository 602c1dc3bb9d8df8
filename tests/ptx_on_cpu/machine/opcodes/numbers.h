// The number formats of PTX, and its rules for NaN: a result that is one has the bits 7fffffff.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "team.h"

namespace ptx {

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <class T>
Bits<T> bits(T x) {
  return std::bit_cast<Bits<T>>(x);
}

// 16-bit floats, as their bits.
struct half {
  uint16_t word;
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(word)); }
};
struct bfloat {
  uint16_t word;
  operator float() const { return std::bit_cast<float>(uint32_t{word} << 16); }
};

template <class T>
constexpr T kNaN = std::bit_cast<T>(static_cast<Bits<T>>(std::numeric_limits<Bits<T>>::max() >> 1));

template <class T>
bool is_nan(T x) {
  return x != x;
}
inline bool is_nan(half x) { return (x.word & 0x7fff) > 0x7c00; }
inline bool is_nan(bfloat x) { return (x.word & 0x7fff) > 0x7f80; }

template <class T>
T canonical(T x) {
  return is_nan(x) ? kNaN<T> : x;
}

// Two numbers of 16 bits, or of 32, in a register.
template <class T>
struct Pair {
  T low, high;
};

// An operation on each half of its operands, which have the same type.
template <auto f>
struct Halves;
template <class T, class... A, T (*f)(T, A...)>
struct Halves<f> {
  using P = Pair<T>;
  using Word = Bits<P>;
  template <class>
  using WordFor = Word;
  static Word apply(Word x, WordFor<A>... a) {
    return bits(P{f(std::bit_cast<P>(x).low, std::bit_cast<P>(a).low...),
                  f(std::bit_cast<P>(x).high, std::bit_cast<P>(a).high...)});
  }
};
template <auto f>
Operation halves() {
  return lanes<Halves<f>::apply>();
}

// Rounded to nearest, ties to even.
inline half to_half(float x) {
  return is_nan(x) ? kNaN<half> : std::bit_cast<half>(static_cast<_Float16>(x));
}
inline bfloat to_bfloat(float x) {
  const uint32_t u = bits(x);
  return is_nan(x) ? kNaN<bfloat>
                   : bfloat{static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

// An 8-bit float, rounded the same way, and saturated at the largest finite number.
template <int mantissa, int least_exponent, int largest>
uint8_t to_float8(float x) {
  constexpr int kDropped = 23 - mantissa;
  constexpr uint32_t kLeast = (least_exponent + 127) << 23;
  const float a = std::fabs(x) < largest ? std::fabs(x) : static_cast<float>(largest);
  const uint32_t exponent = std::max(bits(a) & 0x7f800000, kLeast);
  const uint32_t unit = exponent + (kDropped << 23);  // whose last place is that of the result
  const uint32_t places = bits(a + std::bit_cast<float>(unit)) - unit;
  const uint32_t magnitude = ((exponent - kLeast) >> kDropped) + places;
  return static_cast<uint8_t>(is_nan(x) ? 0x7f : (bits(x) >> 24 & 0x80) | magnitude);
}
inline uint8_t to_e4m3(float x) { return to_float8<3, -6, 448>(x); }
inline uint8_t to_e5m2(float x) { return to_float8<2, -14, 57344>(x); }

}  // namespace ptx
