#include "shared_memory.h"

#include <algorithm>
#include <cstring>

#include "program.h"

namespace ptx {

void SharedMemory::reset() {
  std::ranges::fill(bytes_, '\xff');  // a float would be NaN
  std::ranges::fill(touched_, Touched{});
  interval_ = 0;
}

std::string SharedMemory::name(int thread) {
  return thread == kSeveral ? "several threads" : "thread " + std::to_string(thread);
}

const char* SharedMemory::read(size_t at, size_t size, int thread) {
  for (size_t k = at; k < at + size; ++k) {
    Touched& byte = touched_[k];
    if (byte.writer == kNobody) {
      throw Fault("initcheck: byte " + std::to_string(k) +
                  " of shared memory is read, but was not written");
    }
    if (byte.writer != thread && byte.written == interval_) {
      throw Fault("racecheck: byte " + std::to_string(k) + " of shared memory is read after " +
                  name(byte.writer) + " wrote it, without a barrier between");
    }
    const bool is_first = byte.read != interval_ || byte.reader == kNobody;
    byte.reader = is_first || byte.reader == thread ? thread : kSeveral;
    byte.read = interval_;
  }
  return bytes_.data() + at;
}

void SharedMemory::write(size_t at, size_t size, int thread, const char* data) {
  for (size_t k = at; k < at + size; ++k, ++data) {
    Touched& byte = touched_[k];
    const bool is_first = byte.written != interval_ || byte.writer == kNobody;
    const bool other_wrote = !is_first && byte.writer != thread && bytes_[k] != *data;
    const bool other_read =
        byte.reader != kNobody && byte.reader != thread && byte.read == interval_;
    if (other_wrote || other_read) {
      const int other = other_wrote ? byte.writer : byte.reader;
      throw Fault("racecheck: byte " + std::to_string(k) + " of shared memory is written after " +
                  name(other) + (other_wrote ? " wrote" : " read") +
                  " it, without a barrier between");
    }
    byte.writer = is_first || byte.writer == thread ? thread : kSeveral;
    byte.written = interval_;
    bytes_[k] = *data;
  }
}

}  // namespace ptx
