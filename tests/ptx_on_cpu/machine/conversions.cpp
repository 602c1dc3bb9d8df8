// Conversions. PTX ISA 9.0, section 9.7.9.21: what is narrower is extended by its own sign, what is
// wider is cut off, and floats are rounded as written.
#include <string>

#include "numbers.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

template <class To, class From>
To convert(From x) {
  return static_cast<To>(x);
}
template <class From>
void add_from(Table& table, const std::string& from) {
  table["cvt.s8." + from] = Lanes<convert<int8_t, From>>::operation();
  table["cvt.u8." + from] = Lanes<convert<uint8_t, From>>::operation();
  table["cvt.s16." + from] = Lanes<convert<int16_t, From>>::operation();
  table["cvt.u16." + from] = Lanes<convert<uint16_t, From>>::operation();
  table["cvt.s32." + from] = Lanes<convert<int32_t, From>>::operation();
  table["cvt.u32." + from] = Lanes<convert<uint32_t, From>>::operation();
  table["cvt.s64." + from] = Lanes<convert<int64_t, From>>::operation();
  table["cvt.u64." + from] = Lanes<convert<uint64_t, From>>::operation();
  if constexpr (sizeof(From) >= 2) {
    table["cvt.rn.f32." + from] = Lanes<convert<float, From>>::operation();
    table["cvt.rn.f64." + from] = Lanes<convert<double, From>>::operation();
  }
}

template <class From>
float widen(From x) {
  return canonical(static_cast<float>(x));
}
float narrow(double x) { return canonical(static_cast<float>(x)); }
double widen_float(float x) { return canonical(static_cast<double>(x)); }

// Towards zero; NaN becomes 0, and what is too large the end of the range.
int32_t truncate(float x) {
  if (!(x < 0x1p31f)) return x == x ? INT32_MAX : 0;
  return x < -0x1p31f ? INT32_MIN : static_cast<int32_t>(x);
}

// The first source becomes the high half.
template <class T, T (*f)(float)>
uint32_t round_pair(float high, float low) {
  return std::bit_cast<uint32_t>(Pair<T>{f(low), f(high)});
}

template <uint8_t (*f)(float)>
uint16_t round_to_bytes(float high, float low) {
  return static_cast<uint16_t>(f(low) | f(high) << 8);
}
template <class T, uint8_t (*f)(float)>
uint16_t round_halves_to_bytes(uint32_t pair) {
  const auto [low, high] = std::bit_cast<Pair<T>>(pair);
  return round_to_bytes<f>(high, low);
}
template <uint8_t (*f)(float)>
void add_to_bytes(Table& table, const std::string& to) {
  table["cvt.rn.satfinite." + to + ".f32"] = Lanes<round_to_bytes<f>>::operation();
  table["cvt.rn.satfinite." + to + ".f16x2"] = Lanes<round_halves_to_bytes<half, f>>::operation();
  table["cvt.rn.satfinite." + to + ".bf16x2"] =
      Lanes<round_halves_to_bytes<bfloat, f>>::operation();
}

}  // namespace

void add_conversions(Table& table) {
  add_from<int8_t>(table, "s8");
  add_from<uint8_t>(table, "u8");
  add_from<int16_t>(table, "s16");
  add_from<uint16_t>(table, "u16");
  add_from<int32_t>(table, "s32");
  add_from<uint32_t>(table, "u32");
  add_from<int64_t>(table, "s64");
  add_from<uint64_t>(table, "u64");
  table["cvt.f32.f16"] = Lanes<widen<half>>::operation();
  table["cvt.f32.bf16"] = Lanes<widen<bfloat>>::operation();
  table["cvt.f64.f32"] = Lanes<widen_float>::operation();
  table["cvt.rzi.s32.f32"] = Lanes<truncate>::operation();
  table["cvt.rn.f32.f64"] = Lanes<narrow>::operation();
  table["cvt.rn.f16.f32"] = Lanes<to_half>::operation();
  table["cvt.rn.bf16.f32"] = Lanes<to_bfloat>::operation();
  table["cvt.rn.f16x2.f32"] = Lanes<round_pair<half, to_half>>::operation();
  table["cvt.rn.bf16x2.f32"] = Lanes<round_pair<bfloat, to_bfloat>>::operation();
  table["cvt.rz.f16x2.f32"] = Lanes<round_pair<half, to_half_towards_zero>>::operation();
  add_to_bytes<to_e4m3>(table, "e4m3x2");
  add_to_bytes<to_e5m2>(table, "e5m2x2");
}

}  // namespace ptx
