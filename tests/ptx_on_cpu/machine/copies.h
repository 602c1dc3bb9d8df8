// Copies into shared memory that a thread has begun. What they copy arrives when it waits for it,
// and no sooner.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "shared_memory.h"

namespace ptx {

class Copies {
 public:
  void begin(SharedMemory& memory, size_t at, size_t size, int thread, const char* data) {
    memory.expect(at, size, thread);
    open_.push_back({at, std::string(data, size)});
  }
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  // For all groups but the newest ones.
  void wait(SharedMemory& memory, size_t newest, int thread) {
    for (; groups_.size() > newest; groups_.pop_front()) {
      for (const Copy& copy : groups_.front()) {
        memory.arrive(copy.at, copy.data.size(), thread, copy.data.data());
      }
    }
  }

 private:
  struct Copy {
    size_t at;
    std::string data;
  };
  std::vector<Copy> open_;  // not yet in a group
  std::deque<std::vector<Copy>> groups_;
};

}  // namespace ptx
