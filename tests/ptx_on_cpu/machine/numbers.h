// The number formats of PTX, and its rules for NaN: a result that is one has the bits 7fffffff.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

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
template <class T>
using Word = std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>;

// An operation on each half of its operands.
template <auto f>
struct Halves;
template <class T, class... A, T (*f)(T, A...)>
struct Halves<f> {
  template <class>
  using W = Word<T>;
  static Word<T> apply(Word<T> x, W<A>... a) {
    using P = Pair<T>;
    return std::bit_cast<Word<T>>(P{f(std::bit_cast<P>(x).low, std::bit_cast<P>(a).low...),
                                    f(std::bit_cast<P>(x).high, std::bit_cast<P>(a).high...)});
  }
};

// A comparison of the low halves, or of the high ones.
template <class T, bool (*f)(T, T)>
bool compare_low(uint32_t x, uint32_t y) {
  return f(std::bit_cast<Pair<T>>(x).low, std::bit_cast<Pair<T>>(y).low);
}
template <class T, bool (*f)(T, T)>
bool compare_high(uint32_t x, uint32_t y) {
  return f(std::bit_cast<Pair<T>>(x).high, std::bit_cast<Pair<T>>(y).high);
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
inline half to_half_towards_zero(float x) {
  const half nearest = to_half(x);
  const bool is_beyond = std::fabs(static_cast<float>(nearest)) > std::fabs(x);
  return half{static_cast<uint16_t>(nearest.word - is_beyond)};
}

// A float of 8 bits, rounded likewise; beyond the largest finite number, that one.
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
