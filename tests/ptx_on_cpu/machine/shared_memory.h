// Shared memory, whose every byte knows who touched it. A read of what nobody wrote, and two
// threads of which one writes something else without a barrier between them, are faults. Warps that
// meet at a barrier see what each of them did before, and had seen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes), touched_(bytes) {}
  size_t size() const { return bytes_.size(); }
  void reset();                       // for another block
  void pass_barrier(uint32_t warps);  // a bit for each
  const char* read(size_t at, size_t size, int thread);
  void write(size_t at, size_t size, int thread, const char* data);

 private:
  static constexpr int kNobody = -1, kSeveral = -2, kWarps = 32;
  struct Access {
    int thread = kNobody;
    uint32_t warps = 0;  // a bit for each
    int32_t interval = 0;
  };
  struct Touched {
    Access write, read;
  };
  static std::string name(int thread);
  bool sees(int thread, const Access& earlier) const;
  void note(Access& access, int thread) const;

  std::vector<char> bytes_;
  std::vector<Touched> touched_;
  int32_t interval_ = 0;  // of the block's barriers
  int32_t whole_ = 0;     // which began when all warps had met
  // After that, each warp sees the intervals of every warp before this number.
  std::array<std::array<int32_t, kWarps>, kWarps> seen_ = {};
};

}  // namespace ptx
