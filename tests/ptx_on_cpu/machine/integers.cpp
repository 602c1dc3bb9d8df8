// Integers, bits and predicates. PTX ISA 9.0, sections 9.7.1, 9.7.6 to 9.7.8.
#include <algorithm>
#include <string>

#include "comparisons.h"
#include "extremes.h"
#include "numbers.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T>
T subtract(T a, T b) {
  return a - b;
}
template <class T>
T negate(T a) {
  return 0 - a;
}
template <class T>
T multiply_low(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
T multiply_add_low(T a, T b, T c) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                        static_cast<uint64_t>(c));
}
template <class T, class Wide>
T multiply_high(T a, T b) {
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}
template <class T, class Wide>
Wide multiply_wide(T a, T b) {
  return static_cast<Wide>(a) * static_cast<Wide>(b);
}
template <class T, class Wide>
Wide multiply_add_wide(T a, T b, Wide c) {
  using U = std::make_unsigned_t<Wide>;
  return static_cast<Wide>(static_cast<U>(static_cast<Wide>(a) * static_cast<Wide>(b)) +
                           static_cast<U>(c));
}
template <class T>
T divide(T a, T b) {
  return b == 0 ? static_cast<T>(-1) : static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  return b == 0 ? a : static_cast<T>(a % b);
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

template <class T>
T both(T a, T b) {
  return a & b;
}
template <class T>
T either(T a, T b) {
  return a | b;
}
template <class T>
T exclusive(T a, T b) {
  return a ^ b;
}
template <class T>
T complement(T a) {
  return static_cast<T>(~a);
}
template <class T>
T move(T a) {
  return a;
}
template <class T>
T select(T a, T b, bool p) {
  return p ? a : b;
}

// What is the same for signed and unsigned numbers.
template <class T>
void add_bits(Table& table, const std::string& width) {
  for (const char* kind : {"s", "u", "b"}) {
    const std::string type = kind + width;
    table["add." + type] = Lanes<add<T>>::operation();
    table["sub." + type] = Lanes<subtract<T>>::operation();
    table["neg." + type] = Lanes<negate<T>>::operation();
    table["mul.lo." + type] = Lanes<multiply_low<T>>::operation();
    table["mad.lo." + type] = Lanes<multiply_add_low<T>>::operation();
    table["mov." + type] = Lanes<move<T>>::operation();
    table["selp." + type] = Lanes<select<T>>::operation();
  }
  table["mov.f" + width] = Lanes<move<T>>::operation();
  table["selp.f" + width] = Lanes<select<T>>::operation();
  table["and.b" + width] = Lanes<both<T>>::operation();
  table["or.b" + width] = Lanes<either<T>>::operation();
  table["xor.b" + width] = Lanes<exclusive<T>>::operation();
  table["not.b" + width] = Lanes<complement<T>>::operation();
  table["shl.b" + width] = Lanes<shift_left<T>>::operation();
  table["setp.eq.b" + width] = Lanes<equal<T>>::operation();
  table["setp.ne.b" + width] = Lanes<unequal<T>>::operation();
}

template <class T>
void add_ordered(Table& table, const std::string& type) {
  table["min." + type] = Lanes<minimum<T>>::operation();
  table["max." + type] = Lanes<maximum<T>>::operation();
  table["div." + type] = Lanes<divide<T>>::operation();
  table["rem." + type] = Lanes<remainder<T>>::operation();
  table["shr." + type] = Lanes<shift_right<T>>::operation();
  add_ordered_comparisons<T>(table, type);
}

template <class T>
void add_pairs(Table& table, const std::string& type) {
  table["add." + type] = Lanes<Halves<add<T>>::apply>::operation();
  table["min." + type] = Lanes<Halves<minimum<T>>::apply>::operation();
  table["max." + type] = Lanes<Halves<maximum<T>>::apply>::operation();
}

bool inverse(bool p) { return !p; }
bool truth(uint8_t p) { return p != 0; }  // nvcc writes -1 as well

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
  table["shr.b16"] = Lanes<shift_right<uint16_t>>::operation();
  table["shr.b32"] = Lanes<shift_right<uint32_t>>::operation();
  table["shr.b64"] = Lanes<shift_right<uint64_t>>::operation();
  table["mul.hi.u32"] = Lanes<multiply_high<uint32_t, uint64_t>>::operation();
  table["mul.hi.u64"] = Lanes<multiply_high<uint64_t, unsigned __int128>>::operation();
  table["mul.wide.u16"] = Lanes<multiply_wide<uint16_t, uint32_t>>::operation();
  table["mul.wide.s16"] = Lanes<multiply_wide<int16_t, int32_t>>::operation();
  table["mul.wide.u32"] = Lanes<multiply_wide<uint32_t, uint64_t>>::operation();
  table["mul.wide.s32"] = Lanes<multiply_wide<int32_t, int64_t>>::operation();
  table["mad.wide.s32"] = Lanes<multiply_add_wide<int32_t, int64_t>>::operation();
  table["mad.wide.u32"] = Lanes<multiply_add_wide<uint32_t, uint64_t>>::operation();

  table["mov.pred"] = Lanes<truth>::operation();
  table["and.pred"] = Lanes<both<bool>>::operation();
  table["or.pred"] = Lanes<either<bool>>::operation();
  table["xor.pred"] = Lanes<exclusive<bool>>::operation();
  table["not.pred"] = Lanes<inverse>::operation();
  table["cvta.to.global.u64"] = Lanes<move<uint64_t>>::operation();
}

}  // namespace ptx
