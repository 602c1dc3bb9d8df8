// Loads, stores and atomic updates. Every access must lie in memory that was passed to the launch,
// and be aligned to its size. PTX ISA 9.0, sections 9.7.9.8, 9.7.9.12 and 9.7.13.5.
#include <array>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>

#include "block.h"
#include "order.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

std::string number(uint64_t x) {
  char text[20];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(x));
  return text;
}

[[noreturn]] void fail(const std::string& what, uint64_t address, size_t size, int lane) {
  throw Fault("memcheck: " + std::to_string(size) + " bytes at " + number(address) + " " + what,
              lane);
}

void check_alignment(uint64_t address, size_t size, int lane) {
  if (address % size) fail("are misaligned", address, size, lane);
}

}  // namespace

void check_bounds(const char* memory, size_t bytes, uint64_t at, size_t size, int lane) {
  check_alignment(at, size, lane);
  if (at <= bytes && size <= bytes - at) return;
  fail(std::string("are not among the ") + std::to_string(bytes) + " of " + memory, at, size, lane);
}

namespace {

bool holds(const Region& region, uint64_t address, size_t size) {
  return address >= region.begin && address <= region.end && size <= region.end - address;
}

const Region& region_of(const Block& block, uint64_t address, size_t size, int lane) {
  for (const Region& region : block.regions) {
    if (holds(region, address, size)) return region;
  }
  std::string what = "are not in the memory that the launch was given";
  for (const Region& region : block.regions) {
    if (address < region.begin || address >= region.end + 4096) continue;
    what += ": an allocation of " + std::to_string(region.end - region.begin) + " bytes ends " +
            (address < region.end ? "within them"
                                  : std::to_string(address - region.end) + " bytes before");
    break;
  }
  fail(what, address, size, lane);
}

// The previous kernel may write what this one reads, or read what this one writes.
void check_order(const Team& t, int lane) {
  const Block& block = *t.block;
  if (!block.is_dependent || block.waited[t.first_thread + lane]) return;
  throw Fault("racecheck: global memory, without a wait for the kernel ahead", lane);
}

BlockOrder::Place place_of(const Team& t, int lane) {
  return {t.block->index, t.first_thread + lane, t.block->shared.interval()};
}

struct Global {
  static constexpr bool kIsWritten = true;
  using Address = uint64_t;
  // Calls f(lane, data) for each lane that executes.
  template <size_t size, class F>
  static void access(Team& t, const Instruction& i, const Address* addresses, bool writes, F f) {
    if (!t.block->program.has_atomics) return access_atomically<size>(t, i, addresses, f);
    access_atomically<size>(t, i, addresses, [&](int lane, char* data) {
      try {
        t.block->order.access(addresses[lane] + i.offset, place_of(t, lane), writes);
      } catch (const Fault& fault) {
        throw Fault(fault.what(), lane);
      }
      f(lane, data);
    });
  }
  // The order of the blocks does not matter.
  template <size_t size, class F>
  static void access_atomically(Team& t, const Instruction& i, const Address* addresses, F f) {
    const Region* region = t.block->regions.data();
    if (t.block->regions.empty()) region = &region_of(*t.block, addresses[0], size, 0);
    for_each_active(t, [&](int lane) {
      const uint64_t address = addresses[lane] + i.offset;
      check_alignment(address, size, lane);
      check_order(t, lane);
      if (!holds(*region, address, size)) region = &region_of(*t.block, address, size, lane);
      f(lane, reinterpret_cast<char*>(address));
    });
  }
};

// Global memory that no thread writes while the kernel runs.
struct ReadOnly : Global {
  static constexpr bool kIsWritten = false;
};

struct Shared {
  static constexpr bool kIsWritten = true;
  using Address = uint32_t;
  template <size_t size, class F>
  static void access(Team& t, const Instruction& i, const Address* addresses, bool writes, F f) {
    SharedMemory& memory = t.block->shared;
    for_each_active(t, [&](int lane) {
      const uint64_t at = static_cast<uint64_t>(addresses[lane]) + i.offset;
      check_bounds("shared memory", memory.size(), at, size, lane);
      const int thread = t.first_thread + lane;
      try {
        if (writes) {
          char data[size];
          f(lane, data);
          memory.write(at, size, thread, data);
        } else {
          f(lane, const_cast<char*>(memory.read(at, size, thread)));
        }
      } catch (const Fault& fault) {
        throw Fault(fault.what(), lane);
      }
    });
  }
};

struct Parameters {
  static constexpr bool kIsWritten = false;
  using Address = uint64_t;
  template <size_t size, class F>
  static void access(Team& t, const Instruction& i, const Address* addresses, bool, F f) {
    const std::vector<char>& memory = t.block->parameters;
    for_each_active(t, [&](int lane) {
      const uint64_t at = addresses[lane] + i.offset;
      check_bounds("the parameters", memory.size(), at, size, lane);
      f(lane, const_cast<char*>(memory.data() + at));
    });
  }
};

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
