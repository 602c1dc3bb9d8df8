#include "shared_memory.h"

#include <algorithm>

namespace ptx {

void SharedMemory::reset() {
  std::ranges::fill(bytes_, '\xff');  // a float would be NaN
  std::ranges::fill(touched_, Touched{});
  interval_ = 0;
}

// Whether it was the same thread, or a barrier came after it, of all or of the warp of both.
bool SharedMemory::sees(int thread, const Access& earlier) const {
  const int warp = thread / kWarp;
  const bool own = earlier.warp == warp && earlier.warp_interval < warp_intervals_[warp];
  return earlier.interval < interval_ || own || earlier.thread == thread ||
         earlier.thread == kNobody;
}

void SharedMemory::note(Access& access, int thread) const {
  const int warp = thread / kWarp;
  const bool alone = sees(thread, access), of_warp = alone || access.warp == warp;
  access = {alone ? thread : kSeveral, of_warp ? warp : kSeveral, interval_, warp_intervals_[warp]};
}

std::string SharedMemory::name(int thread) {
  return thread == kSeveral ? "several threads" : "thread " + std::to_string(thread);
}

void SharedMemory::check_no_copy(size_t at) const {
  if (!touched_[at].is_expected) return;
  throw Fault("racecheck: byte " + std::to_string(at) +
              " of shared memory is accessed before a wait for the copy to it");
}

void SharedMemory::expect(size_t at, size_t size, int thread) {
  write(at, size, thread, bytes_.data() + at);  // as far as others see
  for (size_t k = at; k < at + size; ++k) touched_[k].is_expected = true;
}

void SharedMemory::arrive(size_t at, size_t size, int thread, const char* data) {
  for (size_t k = at; k < at + size; ++k) touched_[k].is_expected = false;
  write(at, size, thread, data);
}

const char* SharedMemory::read(size_t at, size_t size, int thread) {
  for (size_t k = at; k < at + size; ++k) {
    Touched& byte = touched_[k];
    check_no_copy(k);
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
    check_no_copy(k);
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
