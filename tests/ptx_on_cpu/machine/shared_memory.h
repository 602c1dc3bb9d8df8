// Shared memory, whose every byte knows who touched it. A read of what nobody wrote, and two
// threads of which one writes something else without a barrier between them, are faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes), touched_(bytes) {}
  size_t size() const { return bytes_.size(); }
  void reset();  // for another block
  void pass_barrier() { ++interval_; }
  const char* read(size_t at, size_t size, int thread);
  void write(size_t at, size_t size, int thread, const char* data);

 private:
  static constexpr int kNobody = -1, kSeveral = -2;
  static std::string name(int thread);
  struct Touched {
    int writer = kNobody, reader = kNobody;
    int64_t written = 0, read = 0;  // the interval between barriers
  };
  std::vector<char> bytes_;
  std::vector<Touched> touched_;
  int64_t interval_ = 0;
};

}  // namespace ptx
