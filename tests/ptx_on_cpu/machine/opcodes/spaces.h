// The spaces of memory. Every access must lie in memory that was passed to the launch, and be
// aligned to its size.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>

#include "block.h"
#include "team.h"

namespace ptx {

inline std::string number(uint64_t x) {
  char text[20];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(x));
  return text;
}

[[noreturn]] inline void fail(const std::string& what, uint64_t address, size_t size, int lane) {
  throw Fault("memcheck: " + std::to_string(size) + " bytes at " + number(address) + " " + what,
              lane);
}

inline void check_alignment(uint64_t address, size_t size, int lane) {
  if (address % size) fail("are misaligned", address, size, lane);
}

inline bool holds(const Region& region, uint64_t address, size_t size) {
  return address >= region.begin && address <= region.end && size <= region.end - address;
}

inline const Region& region_of(const Block& block, uint64_t address, size_t size, int lane) {
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
inline void check_order(const Team& t, int lane) {
  const Block& block = *t.block;
  if (!block.is_dependent || block.waited[t.first_thread + lane]) return;
  throw Fault("racecheck: global memory, without a wait for the kernel ahead", lane);
}

inline BlockOrder::Place place_of(const Team& t, int lane) {
  return {t.block->index, t.first_thread + lane, t.block->shared.interval()};
}

// A fault of f() is the lane's.
template <class F>
void as_lane(int lane, F f) {
  try {
    f();
  } catch (const Fault& fault) {
    throw Fault(fault.what(), lane);
  }
}

struct Global {
  static constexpr bool kIsWritten = true;
  using Address = uint64_t;
  // Calls f(lane, data) for each lane that executes.
  template <size_t size, class F>
  static void access(Team& t, const Instruction& i, const Address* addresses, bool writes, F f) {
    if (!t.block->program.has_atomics) return access_atomically<size>(t, i, addresses, f);
    access_atomically<size>(t, i, addresses, [&](int lane, char* data) {
      as_lane(lane, [&] {
        t.block->order.access(addresses[lane] + i.offset, place_of(t, lane), writes);
      });
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
      as_lane(lane, [&] {
        if (writes) {
          char data[size];
          f(lane, data);
          memory.write(at, size, thread, data);
        } else {
          f(lane, const_cast<char*>(memory.read(at, size, thread)));
        }
      });
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

}  // namespace ptx
