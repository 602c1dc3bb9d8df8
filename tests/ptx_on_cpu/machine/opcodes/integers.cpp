// Integers, bits and predicates. PTX ISA 9.0, sections 9.7.1, 9.7.6 to 9.7.8.
#include <string>

#include "numbers.h"
#include "order.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T>
T multiply_low(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// A shift by more than the width shifts everything out.
template <class T>
T shift_left(T a, uint32_t n) {
  return n < 8 * sizeof(T) ? static_cast<T>(a << (n % (8 * sizeof(T)))) : T{0};
}
template <class T>
T shift_right(T a, uint32_t n) {
  return static_cast<T>(a >> std::min<uint32_t>(n, 8 * sizeof(T) - 1)) >>
         (n >= 8 * sizeof(T) ? 1 : 0);
}

// The high word of b and a, b above a, shifted left.
uint32_t funnel_left(uint32_t a, uint32_t b, uint32_t n) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  return static_cast<uint32_t>(both << n % 32 >> 32);
}

template <class T>
T move(T a) {
  return a;
}
template <class T>
T select(T a, T b, bool p) {
  return p ? a : b;
}

// Opcodes that are the same for signed and unsigned numbers.
template <class T>
void add_bits(Table& table, const std::string& width) {
  for (const char* kind : {"s", "u", "b"}) {
    const std::string type = kind + width;
    table["add." + type] = lanes<add<T>>();
    table["sub." + type] = lanes<[](T a, T b) -> T { return a - b; }>();
    table["neg." + type] = lanes<[](T a) -> T { return 0 - a; }>();
    table["mul.lo." + type] = lanes<multiply_low<T>>();
    table["mad.lo." + type] = lanes<[](T a, T b, T c) -> T { return multiply_low(a, b) + c; }>();
    table["mov." + type] = lanes<move<T>>();
    table["selp." + type] = lanes<select<T>>();
  }
  table["mov.f" + width] = lanes<move<T>>();
  table["selp.f" + width] = lanes<select<T>>();
  table["and.b" + width] = lanes<[](T a, T b) -> T { return a & b; }>();
  table["or.b" + width] = lanes<[](T a, T b) -> T { return a | b; }>();
  table["xor.b" + width] = lanes<[](T a, T b) -> T { return a ^ b; }>();
  table["not.b" + width] = lanes<[](T a) -> T { return ~a; }>();
  table["shl.b" + width] = lanes<shift_left<T>>();
  table["setp.eq.b" + width] = lanes<[](T a, T b) { return a == b; }>();
  table["setp.ne.b" + width] = lanes<[](T a, T b) { return a != b; }>();
}

template <class T>
void add_ordered(Table& table, const std::string& type) {
  table["min." + type] = lanes<minimum<T>>();
  table["max." + type] = lanes<maximum<T>>();
  table["div." + type] = lanes<[](T a, T b) -> T { return b == 0 ? -1 : a / b; }>();
  table["rem." + type] = lanes<[](T a, T b) -> T { return b == 0 ? a : a % b; }>();
  table["shr." + type] = lanes<shift_right<T>>();
  add_comparisons<T>(table, type);
}

template <class T>
void add_pairs(Table& table, const std::string& type) {
  table["add." + type] = halves<add<T>>();
  table["min." + type] = halves<minimum<T>>();
  table["max." + type] = halves<maximum<T>>();
}

// T and Wide are both signed or both unsigned.
template <class T, class Wide, class Unsigned = std::make_unsigned_t<Wide>>
void add_wide_products(Table& table, const std::string& type) {
  table["mul.wide." + type] =
      lanes<[](T a, T b) { return static_cast<Wide>(a) * static_cast<Wide>(b); }>();
  table["mad.wide." + type] = lanes<[](T a, T b, Wide c) -> Wide {
    return static_cast<Unsigned>(static_cast<Wide>(a) * static_cast<Wide>(b)) +
           static_cast<Unsigned>(c);
  }>();
}
template <class T, class Wide>
T multiply_high(T a, T b) {
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}

}  // namespace

void add_integer_operations(Table& table) {
  add_bits<uint16_t>(table, "16");
  add_bits<uint32_t>(table, "32");
  add_bits<uint64_t>(table, "64");
  add_ordered<int16_t>(table, "s16");
  add_ordered<int32_t>(table, "s32");
  add_ordered<int64_t>(table, "s64");
  add_ordered<uint16_t>(table, "u16");
  add_ordered<uint32_t>(table, "u32");
  add_ordered<uint64_t>(table, "u64");
  add_pairs<int16_t>(table, "s16x2");
  add_pairs<uint16_t>(table, "u16x2");
  add_wide_products<int16_t, int32_t>(table, "s16");
  add_wide_products<uint16_t, uint32_t>(table, "u16");
  add_wide_products<int32_t, int64_t>(table, "s32");
  add_wide_products<uint32_t, uint64_t>(table, "u32");
  table["shf.l.wrap.b32"] = lanes<funnel_left>();
  table["mul.hi.u32"] = lanes<multiply_high<uint32_t, uint64_t>>();
  table["mul.hi.u64"] = lanes<multiply_high<uint64_t, unsigned __int128>>();

  table["mov.pred"] = lanes<[](uint8_t p) { return p != 0; }>();  // nvcc writes -1 as well
  table["and.pred"] = lanes<[](bool p, bool q) -> bool { return p & q; }>();
  table["or.pred"] = lanes<[](bool p, bool q) -> bool { return p | q; }>();
  table["xor.pred"] = lanes<[](bool p, bool q) -> bool { return p ^ q; }>();
  table["not.pred"] = lanes<[](bool p) { return !p; }>();
  table["cvta.global.u64"] = lanes<move<uint64_t>>();
  table["cvta.to.global.u64"] = lanes<move<uint64_t>>();
}

}  // namespace ptx
