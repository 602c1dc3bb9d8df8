// What one block may read of another's writes to global memory: what it has acquired. A thread's
// atomic update releases what the thread has written and what others of its block had written
// before the last barrier; the update that a later block acquires by is for its own thread, and
// after a barrier for the others.
//
// Blocks run one after the other here, so that without these rules all would see all.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ptx {

class BlockOrder {
 public:
  // A thread of a block, between two barriers.
  struct Place {
    int64_t block;
    int thread;
    int64_t interval;
  };

  void begin_block() { acquired_.clear(); }

  // A load or a store that is not atomic. Threads that write at an address must be in order, too.
  void access(uint64_t address, const Place& here, bool writes);

  void release(uint64_t counter, const Place& here) { released_[counter][here.block] = here; }
  void acquire(uint64_t counter, const Place& here) { acquired_.push_back({counter, here}); }

 private:
  struct Acquired {
    uint64_t counter;
    Place by;
  };
  bool sees(const Place& here, const Place& written) const;

  std::unordered_map<uint64_t, Place> written_;  // by the address of the access
  std::unordered_map<uint64_t, std::unordered_map<int64_t, Place>> released_;
  std::vector<Acquired> acquired_;  // by the present block
};

}  // namespace ptx
