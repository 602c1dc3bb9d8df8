// Asynchronous copies from global to shared memory. PTX ISA 9.0, section 9.7.9.25.3.
#include <algorithm>

#include "spaces.h"
#include "tables.h"

namespace ptx {
namespace {

// The operands are both addresses and the size of what is read: all or nothing, as one may do
// without the address. What is not read is 0.
template <size_t size>
void copy(Team& t, const Instruction& i) {
  const auto* to = t.column<const uint32_t>(i.operands[0]);
  const auto* read = t.column<const uint32_t>(i.operands[2]);
  SharedMemory& memory = t.block->shared;
  const auto begin = [&](int lane, const char* data) {
    check_bounds("shared memory", memory.size(), to[lane], size, lane);
    const int thread = t.first_thread + lane;
    as_lane(lane, [&] { t.block->copies[thread].begin(memory, to[lane], size, thread, data); });
  };
  Team reading{t.block, t.first_thread, t.threads, nullptr, {}, false};
  std::copy(t.active, t.active + kLanes, reading.active);
  for_each_active(t, [&](int lane) {
    if (read[lane] == size) return;
    if (read[lane] != 0) throw Fault("a copy reads all of its bytes or none", lane);
    reading.active[lane] = false;
    begin(lane, std::string(size, '\0').data());
  });
  Global::access<size>(reading, i, t.column<const uint64_t>(i.operands[1]), false, begin);
}

void commit(Team& t, const Instruction&) {
  for_each_active(t, [&](int lane) { t.block->copies[t.first_thread + lane].commit(); });
}

// The operand is the number of the newest groups that may stay under way.
void wait(Team& t, const Instruction& i) {
  const auto* newest = t.column<const uint32_t>(i.operands[0]);
  for_each_active(t, [&](int lane) {
    const int thread = t.first_thread + lane;
    t.block->copies[thread].wait(t.block->shared, newest[lane], thread);
  });
}

}  // namespace

void add_copies(Table& table) {
  table["cp.async.ca.shared.global.a32.4"] = {copy<4>, {4, 8, 4}};
  table["cp.async.ca.shared.global.a32.8"] = {copy<8>, {4, 8, 4}};
  table["cp.async.cg.shared.global.a32.16"] = {copy<16>, {4, 8, 4}};
  table["cp.async.commit_group"] = {commit, {}};
  table["cp.async.wait_group"] = {wait, {4}};
}

}  // namespace ptx
