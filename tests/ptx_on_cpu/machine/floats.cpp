// Floating point. PTX ISA 9.0, sections 9.7.3 to 9.7.5: subnormal numbers are kept, unless .ftz
// stands there; a NaN among the results has one pattern of bits.
#include <cmath>
#include <string>

#include "bfloat_arithmetic.h"
#include "comparisons.h"
#include "extremes.h"
#include "numbers.h"
#include "special_function_unit.h"
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
T divide(T a, T b) {
  return canonical(a / b);
}
template <class T>
T reciprocal(T a) {
  return canonical(1 / a);
}
template <class T>
T fused(T a, T b, T c) {
  return canonical(std::fma(a, b, c));
}

template <class T>
constexpr Bits<T> kSign = static_cast<Bits<T>>(Bits<T>{1} << (8 * sizeof(T) - 1));
template <class T>
T negate(T a) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits(a) ^ kSign<T>));
}
template <class T>
T absolute(T a) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits(a) & ~kSign<T>));
}

// The sign of a product.
template <class T, T (*f)(T, T)>
T with_sign_of_both(T a, T b) {
  const T d = f(absolute(a), absolute(b));
  const auto sign = static_cast<Bits<T>>((bits(a) ^ bits(b)) & kSign<T>);
  return is_nan(d) ? d : std::bit_cast<T>(static_cast<Bits<T>>(bits(d) | sign));
}
// Of three operands (sm_100).
template <class T, T (*f)(T, T)>
T of_three(T a, T b, T c) {
  return f(f(a, b), c);
}
template <class T, T (*f)(T, T)>
T of_three_absolute(T a, T b, T c) {
  return f(f(absolute(a), absolute(b)), absolute(c));
}

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float add_flushed(float a, float b) { return canonical(flushed(flushed(a) + flushed(b))); }
float multiply_flushed(float a, float b) { return canonical(flushed(flushed(a) * flushed(b))); }
float fused_flushed(float a, float b, float c) {
  return canonical(flushed(std::fma(flushed(a), flushed(b), flushed(c))));
}

template <class T>
bool ordered(T a, T b) {
  return !is_nan(a) && !is_nan(b);
}
template <class T, bool (*f)(T, T)>
bool inverse(T a, T b) {
  return !f(a, b);
}

template <class T>
void add_comparisons(Table& table, const std::string& type) {
  add_ordered_comparisons<T>(table, type);
  table["setp.num." + type] = Lanes<ordered<T>>::operation();
  table["setp.nan." + type] = Lanes<inverse<T, ordered<T>>>::operation();
  table["setp.equ." + type] = Lanes<inverse<T, unequal<T>>>::operation();
  table["setp.neu." + type] = Lanes<inverse<T, equal<T>>>::operation();
  table["setp.ltu." + type] = Lanes<inverse<T, greater_or_equal<T>>>::operation();
  table["setp.leu." + type] = Lanes<inverse<T, greater<T>>>::operation();
  table["setp.gtu." + type] = Lanes<inverse<T, less_or_equal<T>>>::operation();
  table["setp.geu." + type] = Lanes<inverse<T, less<T>>>::operation();
}

template <class T>
void add_signs_and_extremes(Table& table, const std::string& type) {
  table["neg." + type] = Lanes<negate<T>>::operation();
  table["abs." + type] = Lanes<absolute<T>>::operation();
  table["min." + type] = Lanes<minimum<T>>::operation();
  table["max." + type] = Lanes<maximum<T>>::operation();
  table["min.NaN." + type] = Lanes<minimum_or_nan<T>>::operation();
  table["max.NaN." + type] = Lanes<maximum_or_nan<T>>::operation();
  add_comparisons<T>(table, type);
}

template <class T, T (*f)(T, T)>
void add_more_extremes(Table& table, const std::string& name, const std::string& type) {
  table[name + ".xorsign.abs." + type] = Lanes<with_sign_of_both<T, f>>::operation();
  table[name + "." + type + ".of_three"] = Lanes<of_three<T, f>>::operation();
  table[name + ".abs." + type + ".of_three"] = Lanes<of_three_absolute<T, f>>::operation();
}

// 1 or 0.
template <bool (*f)(half, half)>
half truth(half a, half b) {
  return half{static_cast<uint16_t>(f(a, b) ? 0x3c00 : 0)};
}

// A pair of 16-bit floats in a register.
template <class T>
void add_pairs(Table& table, const std::string& type) {
  table["neg." + type] = Lanes<Halves<negate<T>>::apply>::operation();
  table["abs." + type] = Lanes<Halves<absolute<T>>::apply>::operation();
  table["min." + type] = Lanes<Halves<minimum<T>>::apply>::operation();
  table["max." + type] = Lanes<Halves<maximum<T>>::apply>::operation();
  table["min.NaN." + type] = Lanes<Halves<minimum_or_nan<T>>::apply>::operation();
  table["max.NaN." + type] = Lanes<Halves<maximum_or_nan<T>>::apply>::operation();
  table["max.NaN.xorsign.abs." + type] =
      Lanes<Halves<with_sign_of_both<T, maximum_or_nan<T>>>::apply>::operation();
  const auto compare = [&]<bool (*f)(T, T)>(const char* name) {
    table[std::string("setp.") + name + "." + type] =
        Both<compare_low<T, f>, compare_high<T, f>>::operation();
  };
  compare.template operator()<equal<T>>("eq");
  compare.template operator()<unequal<T>>("ne");
  compare.template operator()<less<T>>("lt");
  compare.template operator()<less_or_equal<T>>("le");
  compare.template operator()<greater<T>>("gt");
  compare.template operator()<greater_or_equal<T>>("ge");
  compare.template operator()<inverse<T, less_or_equal<T>>>("gtu");
  compare.template operator()<inverse<T, greater_or_equal<T>>>("ltu");
}

// A 16-bit float and a float (sm_100).
template <class T>
float add_mixed(T a, float c) {
  return canonical(static_cast<float>(a) + c);
}
template <class T>
float subtract_mixed(T a, float c) {
  return canonical(static_cast<float>(a) - c);
}
template <class T>
float fused_mixed(T a, T b, float c) {
  return canonical(std::fma(static_cast<float>(a), static_cast<float>(b), c));
}
template <class T>
void add_mixed_arithmetic(Table& table, const std::string& type) {
  table["add.rn.f32." + type] = table["add.f32." + type] = Lanes<add_mixed<T>>::operation();
  table["sub.rn.f32." + type] = table["sub.f32." + type] = Lanes<subtract_mixed<T>>::operation();
  table["fma.rn.f32." + type] = Lanes<fused_mixed<T>>::operation();
}

template <class T>
void add_arithmetic(Table& table, const std::string& type) {
  for (const std::string rounding : {".", ".rn."}) {
    table["add" + rounding + type] = Lanes<add<T>>::operation();
    table["sub" + rounding + type] = Lanes<subtract<T>>::operation();
    table["mul" + rounding + type] = Lanes<multiply<T>>::operation();
  }
  table["fma.rn." + type] = Lanes<fused<T>>::operation();
  table["div.rn." + type] = Lanes<divide<T>>::operation();
  table["rcp.rn." + type] = Lanes<reciprocal<T>>::operation();
  add_signs_and_extremes<T>(table, type);
}

}  // namespace

void add_float_operations(Table& table) {
  add_arithmetic<float>(table, "f32");
  add_arithmetic<double>(table, "f64");
  add_mixed_arithmetic<half>(table, "f16");
  add_mixed_arithmetic<bfloat>(table, "bf16");
  add_signs_and_extremes<half>(table, "f16");
  add_signs_and_extremes<bfloat>(table, "bf16");
  add_pairs<half>(table, "f16x2");
  add_pairs<bfloat>(table, "bf16x2");
  add_more_extremes<float, minimum<float>>(table, "min", "f32");
  add_more_extremes<float, maximum<float>>(table, "max", "f32");
  add_more_extremes<float, minimum_or_nan<float>>(table, "min.NaN", "f32");
  add_more_extremes<float, maximum_or_nan<float>>(table, "max.NaN", "f32");
  table["set.nan.f16x2.f16x2"] =
      Lanes<Halves<truth<inverse<half, ordered<half>>>>::apply>::operation();
  table["mul.bf16x2"] = table["mul.rn.bf16x2"] = Lanes<Halves<multiply_bfloat>::apply>::operation();
  table["fma.rn.bf16x2"] = Lanes<Halves<fused_bfloat>::apply>::operation();
  table["add.rn.ftz.f32"] = table["add.ftz.f32"] = Lanes<add_flushed>::operation();
  table["mul.rn.ftz.f32"] = table["mul.ftz.f32"] = Lanes<multiply_flushed>::operation();
  table["fma.rn.ftz.f32"] = Lanes<fused_flushed>::operation();
  table["add.rn.f32x2"] = Lanes<Halves<add<float>>::apply>::operation();
  table["sub.rn.f32x2"] = Lanes<Halves<subtract<float>>::apply>::operation();
  table["mul.rn.f32x2"] = Lanes<Halves<multiply<float>>::apply>::operation();
  table["fma.rn.f32x2"] = Lanes<Halves<fused<float>>::apply>::operation();
  table["ex2.approx.ftz.f32"] = Lanes<approximate_exp2>::operation();
  table["rcp.approx.ftz.f32"] = Lanes<approximate_reciprocal>::operation();
  table["div.full.f32"] = Lanes<approximate_quotient>::operation();
}

}  // namespace ptx
