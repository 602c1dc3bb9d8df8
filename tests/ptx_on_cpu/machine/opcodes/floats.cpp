// Floating point. PTX ISA 9.0, sections 9.7.3 to 9.7.5: subnormal numbers are kept without .ftz,
// and every NaN result has the same bits.
#include <cmath>
#include <string>

#include "numbers.h"
#include "order.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

template <class T>
T add(T a, T b) {
  return canonical(a + b);
}
template <class T>
T subtract(T a, T b) {
  return canonical(a - b);
}
template <class T>
T multiply(T a, T b) {
  return canonical(a * b);
}
template <class T>
T fused(T a, T b, T c) {
  return canonical(std::fma(a, b, c));
}
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float fused_flushed(float a, float b, float c) {
  return flushed(fused(flushed(a), flushed(b), flushed(c)));
}

// x + error, where x is the nearest T to the sum. If the sum lies between two of them, the odd one.
template <class T>
T rounded_to_odd(T x, double error) {
  if (!(error < 0 || error > 0)) return x;
  const bool is_beyond = x != 0 && (error < 0) == (x > 0);
  return std::bit_cast<T>(static_cast<Bits<T>>((bits(x) - is_beyond) | 1));
}

// The product is exact in double. The sum is rounded to odd, there and to float: both have more
// than the two places beyond a bfloat's that the last rounding needs.
bfloat fused_bfloat(bfloat a, bfloat b, bfloat c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = c;
  const double sum = product + addend, part = sum - product;
  const double odd = rounded_to_odd(sum, (product - (sum - part)) + (addend - part));
  const float nearest = static_cast<float>(odd);
  return to_bfloat(rounded_to_odd(nearest, odd - nearest));
}

// Rounded towards zero: the nearest float, or the next one if that is too large.
float add_towards_zero(float a, float b) {
  const float sum = a + b, part = sum - a;
  if (std::isinf(sum) && std::isfinite(a) && std::isfinite(b)) return std::nextafter(sum, 0.0f);
  const float error = (a - (sum - part)) + (b - part);
  return (sum > 0 && error < 0) || (sum < 0 && error > 0) ? std::nextafter(sum, 0.0f)
                                                          : canonical(sum);
}

template <class T>
constexpr Bits<T> kSign = static_cast<Bits<T>>(Bits<T>{1} << (8 * sizeof(T) - 1));
template <class T>
T absolute(T a) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits(a) & ~kSign<T>));
}
template <class T>
T greatest_magnitude_with_sign_of_product(T a, T b) {
  const T d = maximum_or_nan(absolute(a), absolute(b));
  const auto sign = static_cast<Bits<T>>((bits(a) ^ bits(b)) & kSign<T>);
  return is_nan(d) ? d : std::bit_cast<T>(static_cast<Bits<T>>(bits(d) | sign));
}

template <class T>
void add_signs_and_order(Table& table, const std::string& type) {
  table["neg." + type] =
      lanes<[](T a) { return std::bit_cast<T>(static_cast<Bits<T>>(bits(a) ^ kSign<T>)); }>();
  table["abs." + type] = lanes<absolute<T>>();
  table["min." + type] = lanes<minimum<T>>();
  table["max." + type] = lanes<maximum<T>>();
  table["min.NaN." + type] = lanes<minimum_or_nan<T>>();
  table["max.NaN." + type] = lanes<maximum_or_nan<T>>();
  add_comparisons<T>(table, type);
  table["setp.num." + type] = lanes<[](T a, T b) { return !is_nan(a) && !is_nan(b); }>();
  table["setp.nan." + type] = lanes<[](T a, T b) { return is_nan(a) || is_nan(b); }>();
  table["setp.equ." + type] = lanes<[](T a, T b) { return !(a < b || b < a); }>();
  table["setp.neu." + type] = lanes<[](T a, T b) { return !(a == b); }>();
  table["setp.ltu." + type] = lanes<[](T a, T b) { return !(a >= b); }>();
  table["setp.leu." + type] = lanes<[](T a, T b) { return !(b < a); }>();
  table["setp.gtu." + type] = lanes<[](T a, T b) { return !(a <= b); }>();
  table["setp.geu." + type] = lanes<[](T a, T b) { return !(a < b); }>();
}

template <class T>
void add_arithmetic(Table& table, const std::string& type) {
  table["add.rn." + type] = lanes<add<T>>();
  table["sub.rn." + type] = lanes<subtract<T>>();
  table["mul.rn." + type] = lanes<multiply<T>>();
  table["fma.rn." + type] = lanes<fused<T>>();
  table["div.rn." + type] = lanes<[](T a, T b) { return canonical(a / b); }>();
  table["rcp.rn." + type] = lanes<[](T a) { return canonical(1 / a); }>();
}

// A 16-bit float and a float (sm_100).
template <class T>
void add_mixed_arithmetic(Table& table, const std::string& type) {
  table["add.rn.f32." + type] = lanes<[](T a, float c) { return add<float>(a, c); }>();
  table["sub.rn.f32." + type] = lanes<[](T a, float c) { return subtract<float>(a, c); }>();
  table["fma.rn.f32." + type] = lanes<[](T a, T b, float c) { return fused<float>(a, b, c); }>();
}

// The result is a predicate for each half.
template <class T, auto f>
Operation comparison_of_pairs() {
  constexpr auto low = [](uint32_t a, uint32_t b) {
    return f(std::bit_cast<Pair<T>>(a).low, std::bit_cast<Pair<T>>(b).low);
  };
  constexpr auto high = [](uint32_t a, uint32_t b) {
    return f(std::bit_cast<Pair<T>>(a).high, std::bit_cast<Pair<T>>(b).high);
  };
  return Both<low, high>::operation();
}

// A pair of 16-bit floats in a register.
template <class T>
void add_pairs(Table& table, const std::string& type) {
  table["abs." + type] = halves<absolute<T>>();
  table["min." + type] = halves<minimum<T>>();
  table["max." + type] = halves<maximum<T>>();
  table["min.NaN." + type] = halves<minimum_or_nan<T>>();
  table["max.NaN." + type] = halves<maximum_or_nan<T>>();
  table["max.NaN.xorsign.abs." + type] = halves<greatest_magnitude_with_sign_of_product<T>>();
  table["setp.eq." + type] = comparison_of_pairs<T, [](T a, T b) { return a == b; }>();
  table["setp.lt." + type] = comparison_of_pairs<T, [](T a, T b) { return a < b; }>();
  table["setp.gt." + type] = comparison_of_pairs<T, [](T a, T b) { return b < a; }>();
  table["setp.gtu." + type] = comparison_of_pairs<T, [](T a, T b) { return !(a <= b); }>();
  table["setp.num." + type] =
      comparison_of_pairs<T, [](T a, T b) { return !is_nan(a) && !is_nan(b); }>();
}

}  // namespace

void add_float_operations(Table& table) {
  add_arithmetic<float>(table, "f32");
  add_arithmetic<double>(table, "f64");
  add_mixed_arithmetic<half>(table, "f16");
  add_mixed_arithmetic<bfloat>(table, "bf16");
  add_signs_and_order<float>(table, "f32");
  add_signs_and_order<double>(table, "f64");
  add_signs_and_order<half>(table, "f16");
  add_signs_and_order<bfloat>(table, "bf16");
  add_pairs<half>(table, "f16x2");
  add_pairs<bfloat>(table, "bf16x2");
  table["max.NaN.xorsign.abs.f32"] = lanes<greatest_magnitude_with_sign_of_product<float>>();
  table["add.rz.f32"] = lanes<add_towards_zero>();
  table["fma.rn.bf16x2"] = halves<fused_bfloat>();
  table["fma.rn.ftz.f32"] = lanes<fused_flushed>();
  table["add.rn.f32x2"] = halves<add<float>>();
  table["sub.rn.f32x2"] = halves<subtract<float>>();
  table["mul.rn.f32x2"] = halves<multiply<float>>();
  table["fma.rn.f32x2"] = halves<fused<float>>();
  // ".sat clamps the result to [0.0, 1.0]. NaN results are flushed to +0.0f."
  table["mul.rn.sat.f32"] =
      lanes<[](float a, float b) { return std::fmin(std::fmax(a * b, 0.0f), 1.0f); }>();
}

}  // namespace ptx
