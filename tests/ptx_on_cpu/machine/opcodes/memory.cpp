// Loads, stores and atomic updates. PTX ISA 9.0, sections 9.7.9.8, 9.7.9.12 and 9.7.13.5.
#include <array>
#include <cstring>
#include <initializer_list>
#include <string>

#include "order.h"
#include "spaces.h"
#include "tables.h"

namespace ptx {

void check_bounds(const char* memory, size_t bytes, uint64_t at, size_t size, int lane) {
  check_alignment(at, size, lane);
  if (at <= bytes && size <= bytes - at) return;
  fail(std::string("are not among the ") + std::to_string(bytes) + " of " + memory, at, size, lane);
}

namespace {

// The operands are the elements of the vector, then the address.
template <class Space, class T, int count>
void load(Team& t, const Instruction& i) {
  std::array<T*, count> columns;
  for (int k = 0; k < count; ++k) columns[k] = t.column<T>(i.operands[k]);
  const auto* addresses = t.column<const typename Space::Address>(i.operands[count]);
  Space::template access<count * sizeof(T)>(
      t, i, addresses, false, [&](int lane, const char* data) {
        for (int k = 0; k < count; ++k)
          std::memcpy(columns[k] + lane, data + k * sizeof(T), sizeof(T));
      });
}

// The operands are the address, then the elements.
template <class Space, class T, int count>
void store(Team& t, const Instruction& i) {
  std::array<const T*, count> columns;
  for (int k = 0; k < count; ++k) columns[k] = t.column<const T>(i.operands[1 + k]);
  const auto* addresses = t.column<const typename Space::Address>(i.operands[0]);
  Space::template access<count * sizeof(T)>(t, i, addresses, true, [&](int lane, char* data) {
    for (int k = 0; k < count; ++k) std::memcpy(data + k * sizeof(T), columns[k] + lane, sizeof(T));
  });
}

template <class Space, class T, int count>
void add_count(Table& table, const std::string& space, const std::string& type) {
  using A = typename Space::Address;
  const std::string vector = count == 1 ? "." : ".v" + std::to_string(count) + ".";
  const std::string key = std::is_same_v<A, uint32_t> ? ".a32" : "";
  Operation in = {load<Space, T, count>, std::vector<uint8_t>(count, sizeof(T))};
  in.widths.push_back(sizeof(A));
  table["ld" + space + vector + type + key] = in;
  if constexpr (Space::kIsWritten) {
    Operation out = {store<Space, T, count>, {sizeof(A)}};
    out.widths.insert(out.widths.end(), count, sizeof(T));
    table["st" + space + vector + type + key] = out;
  }
}

template <class Space, class T>
void add_type(Table& table, const std::string& space, std::initializer_list<const char*> types) {
  for (const char* type : types) {
    add_count<Space, T, 1>(table, space, type);
    add_count<Space, T, 2>(table, space, type);
    add_count<Space, T, 4>(table, space, type);
  }
}

template <class Space>
void add_space(Table& table, const std::string& space) {
  add_type<Space, uint8_t>(table, space, {"b8", "u8", "s8"});
  add_type<Space, uint16_t>(table, space, {"b16", "u16", "s16"});
  add_type<Space, uint32_t>(table, space, {"b32", "u32", "s32", "f32"});
  add_type<Space, uint64_t>(table, space, {"b64", "u64", "s64", "f64"});
}

// The result, if there is one, is the number before the update. Threads run one at a time.
template <class T, T (*f)(T, T), bool has_result, bool orders>
void update(Team& t, const Instruction& i) {
  T* const d = has_result ? t.column<T>(i.operands[0]) : nullptr;
  const auto* addresses = t.column<const uint64_t>(i.operands[has_result]);
  const T* const b = t.column<const T>(i.operands[has_result + 1]);
  Global::access_atomically<sizeof(T)>(t, i, addresses, [&](int lane, char* data) {
    if constexpr (orders) {
      t.block->order.release(addresses[lane] + i.offset, place_of(t, lane));
      t.block->order.acquire(addresses[lane] + i.offset, place_of(t, lane));
    }
    T before;
    std::memcpy(&before, data, sizeof before);
    const T after = f(before, b[lane]);
    std::memcpy(data, &after, sizeof after);
    if constexpr (has_result) d[lane] = before;
  });
}

template <class T, T (*f)(T, T)>
void add_update(Table& table, const std::string& operation) {
  for (const std::string order : {".", ".gpu.relaxed."}) {
    table["atom.global" + order + operation] = {update<T, f, true, false>,
                                                {sizeof(T), 8, sizeof(T)}};
    table["red.global" + order + operation] = {update<T, f, false, false>, {8, sizeof(T)}};
  }
}

// Counts up to a limit, and then from 0 again.
uint32_t increment(uint32_t count, uint32_t limit) { return count >= limit ? 0 : count + 1; }

}  // namespace

void add_memory_operations(Table& table) {
  add_space<Global>(table, ".global");
  add_space<ReadOnly>(table, ".global.nc");
  add_space<Global>(table, "");  // a generic address is one of global memory
  add_space<Parameters>(table, ".param");
  add_space<Shared>(table, ".shared");
  add_update<uint32_t, maximum>(table, "max.u32");
  add_update<int32_t, maximum>(table, "max.s32");
  using Count = uint32_t;
  table["atom.relaxed.gpu.inc.u32"] = {update<Count, increment, true, false>, {4, 8, 4}};
  table["atom.acq_rel.gpu.inc.u32"] = {update<Count, increment, true, true>, {4, 8, 4}};
}

}  // namespace ptx
