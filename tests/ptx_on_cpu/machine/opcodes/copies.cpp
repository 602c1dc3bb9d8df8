// Asynchronous copies from global to shared memory. PTX ISA 9.0, section 9.7.9.25.3.
#include "spaces.h"
#include "tables.h"

namespace ptx {
namespace {

// The operands are both addresses and the size, which is 16 bytes for this cache operator.
void copy(Team& t, const Instruction& i) {
  constexpr size_t kSize = 16;
  const auto* to = t.column<const uint32_t>(i.operands[0]);
  const auto* size = t.column<const uint32_t>(i.operands[2]);
  SharedMemory& memory = t.block->shared;
  Global::access<kSize>(
      t, i, t.column<const uint64_t>(i.operands[1]), false, [&](int lane, const char* data) {
        if (size[lane] != kSize) throw Fault("a copy has 16 bytes", lane);
        check_bounds("shared memory", memory.size(), to[lane], kSize, lane);
        const int thread = t.first_thread + lane;
        as_lane(lane,
                [&] { t.block->copies[thread].begin(memory, to[lane], kSize, thread, data); });
      });
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
  table["cp.async.cg.shared.global.a32"] = {copy, {4, 8, 4}};
  table["cp.async.commit_group"] = {commit, {}};
  table["cp.async.wait_group"] = {wait, {4}};
}

}  // namespace ptx
