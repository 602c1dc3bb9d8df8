// Bits and bytes within a register, and registers as parts of others. PTX ISA 9.0, sections 9.7.1
// and 9.7.8.
#include <algorithm>
#include <type_traits>

#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

uint32_t look_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t d = 0;
  for (uint32_t k = 0; k < 8; ++k) {
    if (!(table >> k & 1)) continue;
    d |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return d;
}

uint32_t field_mask(uint32_t position, uint32_t length) {
  const uint64_t ones = length >= 32 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
  return position >= 32 ? 0 : static_cast<uint32_t>(ones << position);
}
uint32_t insert_field(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t position = c & 0xff, length = d & 0xff;
  const uint32_t mask = field_mask(position, length);
  return (b & ~mask) | (position >= 32 ? 0 : (a << position) & mask);
}
uint64_t insert_wide_field(uint64_t a, uint64_t b, uint32_t c, uint32_t d) {
  const uint32_t position = c & 0xff, length = d & 0xff;
  if (position >= 64) return b;
  const uint64_t ones = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
  return (b & ~(ones << position)) | (a & ones) << position;
}
template <class Unsigned>
Unsigned extract_field(Unsigned a, uint32_t b, uint32_t c) {
  constexpr uint32_t bits = 8 * sizeof a;
  const uint32_t position = b & 0xff, length = c & 0xff;
  const Unsigned field = position >= bits ? 0 : a >> position;
  return length >= bits ? field : field & ((Unsigned{1} << length) - 1);
}
template <class Signed>
Signed extract_signed_field(Signed a, uint32_t b, uint32_t c) {
  using Unsigned = std::make_unsigned_t<Signed>;
  constexpr uint32_t bits = 8 * sizeof a;
  const uint32_t position = b & 0xff, length = c & 0xff;
  if (length == 0) return 0;
  const uint32_t last = std::min(position + length - 1, bits - 1);
  const bool sign = static_cast<Unsigned>(a) >> last & 1;
  const uint32_t kept = position >= bits ? 0 : last + 1 - position;
  const Unsigned above = kept >= bits ? 0 : ~Unsigned{0} << kept;
  const Unsigned field = extract_field(static_cast<Unsigned>(a), b, c);
  return static_cast<Signed>(sign ? field | above : field);
}
uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = a | uint64_t{b} << 32;
  uint32_t d = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t selector = selectors >> (4 * k);
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 0xff;
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    d |= byte << (8 * k);
  }
  return d;
}
uint32_t pack_16(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }
uint64_t pack_32(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }
uint16_t low_16(uint32_t a) { return static_cast<uint16_t>(a); }
uint16_t high_16(uint32_t a) { return static_cast<uint16_t>(a >> 16); }
uint32_t low_32(uint64_t a) { return static_cast<uint32_t>(a); }
uint32_t high_32(uint64_t a) { return static_cast<uint32_t>(a >> 32); }

}  // namespace

void add_field_operations(Table& table) {
  table["lop3.b32"] = lanes<look_up>();
  table["bfi.b32"] = lanes<insert_field>();
  table["bfi.b64"] = lanes<insert_wide_field>();
  table["bfe.u32"] = lanes<extract_field<uint32_t>>();
  table["bfe.u64"] = lanes<extract_field<uint64_t>>();
  table["bfe.s32"] = lanes<extract_signed_field<int32_t>>();
  table["bfe.s64"] = lanes<extract_signed_field<int64_t>>();
  table["prmt.b32"] = lanes<permute>();

  // The assembler's names for mov between a register and its parts.
  table["pack.b32"] = lanes<pack_16>();
  table["pack.b64"] = lanes<pack_32>();
  table["unpack.b32"] = Both<low_16, high_16>::operation();
  table["unpack.b64"] = Both<low_32, high_32>::operation();
}

}  // namespace ptx
