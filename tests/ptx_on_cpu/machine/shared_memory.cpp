#include "shared_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "program.h"

namespace ptx {

void SharedMemory::reset() {
  std::ranges::fill(bytes_, '\xff');  // a float would be NaN
  std::ranges::fill(touched_, Touched{});
  interval_ = whole_ = 0;
  seen_ = {};
}

void SharedMemory::pass_barrier(uint32_t warps) {
  ++interval_;
  if (warps == ~uint32_t{0}) {
    whole_ = interval_;
    return;
  }
  std::array<int32_t, kWarps> seen = {};
  for (int warp = 0; warp < kWarps; ++warp) {
    if (!(warps >> warp & 1)) continue;
    seen_[warp][warp] = interval_;
    for (int other = 0; other < kWarps; ++other) {
      seen[other] = std::max(seen[other], seen_[warp][other]);
    }
  }
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warps >> warp & 1) seen_[warp] = seen;
  }
}

// Whether a barrier is between them, or the same thread did it.
bool SharedMemory::sees(int thread, const Access& earlier) const {
  if (earlier.interval < whole_ || earlier.thread == thread) return true;
  const auto& seen = seen_[thread / kWarp];
  for (uint32_t warps = earlier.warps; warps; warps &= warps - 1) {
    if (earlier.interval >= seen[std::countr_zero(warps)]) return false;
  }
  return true;
}

void SharedMemory::note(Access& access, int thread) const {
  const uint32_t warp = uint32_t{1} << thread / kWarp;
  access = sees(thread, access) ? Access{thread, warp, interval_}
                                : Access{kSeveral, access.warps | warp, interval_};
}

std::string SharedMemory::name(int thread) {
  return thread == kSeveral ? "several threads" : "thread " + std::to_string(thread);
}

const char* SharedMemory::read(size_t at, size_t size, int thread) {
  for (size_t k = at; k < at + size; ++k) {
    Touched& byte = touched_[k];
    if (byte.write.thread == kNobody) {
      throw Fault("initcheck: byte " + std::to_string(k) +
                  " of shared memory is read, but was not written");
    }
    if (!sees(thread, byte.write)) {
      throw Fault("racecheck: byte " + std::to_string(k) + " of shared memory is read after " +
                  name(byte.write.thread) + " wrote it, without a barrier between");
    }
    note(byte.read, thread);
  }
  return bytes_.data() + at;
}

void SharedMemory::write(size_t at, size_t size, int thread, const char* data) {
  for (size_t k = at; k < at + size; ++k, ++data) {
    Touched& byte = touched_[k];
    const bool other_wrote = bytes_[k] != *data && !sees(thread, byte.write);
    if (other_wrote || !sees(thread, byte.read)) {
      const int other = other_wrote ? byte.write.thread : byte.read.thread;
      throw Fault("racecheck: byte " + std::to_string(k) + " of shared memory is written after " +
                  name(other) + (other_wrote ? " wrote" : " read") +
                  " it, without a barrier between");
    }
    note(byte.write, thread);
    bytes_[k] = *data;
  }
}

}  // namespace ptx
