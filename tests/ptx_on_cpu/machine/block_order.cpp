#include "block_order.h"

#include <string>

#include "program.h"

namespace ptx {
namespace {

// Whether `later` comes after `earlier` in their block.
bool follows(const BlockOrder::Place& later, const BlockOrder::Place& earlier) {
  return later.interval > earlier.interval || later.thread == earlier.thread;
}

}  // namespace

bool BlockOrder::sees(const Place& here, const Place& written) const {
  if (written.block == here.block) return true;  // its own order is not checked
  for (const auto& [counter, by] : acquired_) {
    const auto& all = released_.at(counter);
    const auto release = all.find(written.block);
    if (release != all.end() && follows(release->second, written) && follows(here, by)) return true;
  }
  return false;
}

void BlockOrder::access(uint64_t address, const Place& here, bool writes) {
  const auto found = written_.find(address);
  if (found != written_.end() && !sees(here, found->second)) {
    throw Fault(std::string("racecheck: global memory is ") + (writes ? "written" : "read") +
                " after block " + std::to_string(found->second.block) +
                " wrote it, which released it to no counter that this thread has acquired");
  }
  if (writes) written_[address] = here;
}

}  // namespace ptx
