// Conversions. PTX ISA 9.0, section 9.7.9.21: narrower integers are extended by their own sign,
// wider ones are truncated, and floats are rounded as the opcode says.
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
  table["cvt.s8." + from] = lanes<convert<int8_t, From>>();
  table["cvt.u8." + from] = lanes<convert<uint8_t, From>>();
  table["cvt.s16." + from] = lanes<convert<int16_t, From>>();
  table["cvt.u16." + from] = lanes<convert<uint16_t, From>>();
  table["cvt.s32." + from] = lanes<convert<int32_t, From>>();
  table["cvt.u32." + from] = lanes<convert<uint32_t, From>>();
  table["cvt.s64." + from] = lanes<convert<int64_t, From>>();
  table["cvt.u64." + from] = lanes<convert<uint64_t, From>>();
  if constexpr (sizeof(From) >= 2) {
    table["cvt.rn.f32." + from] = lanes<convert<float, From>>();
    table["cvt.rn.f64." + from] = lanes<convert<double, From>>();
  }
}

template <class To, class From>
To convert_float(From x) {
  return canonical(static_cast<To>(x));
}

// Towards zero. NaN becomes 0, and a number out of range the nearest one in it.
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
  table["cvt.f32.f16"] = lanes<convert_float<float, half>>();
  table["cvt.f32.bf16"] = lanes<convert_float<float, bfloat>>();
  table["cvt.f64.f32"] = lanes<convert_float<double, float>>();
  table["cvt.rzi.s32.f32"] = lanes<truncate>();
  table["cvt.rn.f32.f64"] = lanes<convert_float<float, double>>();
  table["cvt.rn.f16.f32"] = lanes<to_half>();
  table["cvt.rn.bf16.f32"] = lanes<to_bfloat>();
  table["cvt.rn.f16x2.f32"] = lanes<round_pair<half, to_half>>();
  table["cvt.rn.bf16x2.f32"] = lanes<round_pair<bfloat, to_bfloat>>();
  table["cvt.rn.satfinite.e4m3x2.f32"] = lanes<round_to_bytes<to_e4m3>>();
  table["cvt.rn.satfinite.e5m2x2.f32"] = lanes<round_to_bytes<to_e5m2>>();
}

}  // namespace ptx
