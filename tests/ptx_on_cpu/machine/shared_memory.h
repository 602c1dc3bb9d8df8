// Shared memory that records who touched each byte. It is a fault to read a byte that was not
// written, for two threads to access a byte without a barrier between them if one of them changes
// it, and to access a byte that a copy is on its way to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace ptx {

class SharedMemory {
 public:
  SharedMemory(size_t bytes, size_t threads)
      : bytes_(bytes), touched_(bytes), warp_intervals_((threads + kWarp - 1) / kWarp) {}
  size_t size() const { return bytes_.size(); }
  void reset();  // for another block
  void pass_barrier() { ++interval_; }
  void pass_barrier_of_warp(int thread) { ++warp_intervals_[thread / kWarp]; }
  int64_t interval() const { return interval_; }
  const char* read(size_t at, size_t size, int thread);
  void write(size_t at, size_t size, int thread, const char* data);
  // A thread begins a copy, and sees it arrive.
  void expect(size_t at, size_t size, int thread);
  void arrive(size_t at, size_t size, int thread, const char* data);

 private:
  static constexpr int kNobody = -1, kSeveral = -2;
  struct Access {
    int thread = kNobody, warp = kNobody;
    int64_t interval = 0, warp_interval = 0;
  };
  struct Touched {
    Access write, read;
    bool is_expected = false;
  };
  static std::string name(int thread);
  bool sees(int thread, const Access& earlier) const;
  void note(Access& access, int thread) const;
  void check_no_copy(size_t at) const;

  std::vector<char> bytes_;
  std::vector<Touched> touched_;
  int64_t interval_ = 0;                 // between barriers
  std::vector<int64_t> warp_intervals_;  // between those of a warp
};

}  // namespace ptx
