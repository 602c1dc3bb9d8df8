// The barriers of a block, by their numbers. PTX ISA 9.0, section 9.7.13.1.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "shared_memory.h"

namespace ptx {

class Barriers {
 public:
  static constexpr int kCount = 16, kMostThreads = 1024;
  using Threads = std::bitset<kMostThreads>;

  explicit Barriers(int threads) : waiting_(threads) {}
  int threads() const { return static_cast<int>(waiting_.size()); }
  void reset();  // for another block

  // `expected` threads shall meet, or the whole block if it is 0.
  void wait(int thread, uint32_t barrier, uint32_t expected, int64_t next);

  // All threads wait or have ended: which go on. It is a fault if none does.
  Threads pass(SharedMemory& shared);

 private:
  static constexpr int kNowhere = -1;
  struct Waiting {
    int barrier = kNowhere, expected = 0;
    int64_t next = 0;
  };
  bool is_complete(const std::vector<int>& threads) const;
  [[noreturn]] void fail_for_ever() const;

  std::vector<Waiting> waiting_;
};

}  // namespace ptx
