// Exchanges between the lanes of a warp, their barrier, and the wait for the previous kernel. PTX
// ISA 9.0, sections 9.7.9.6 and 9.7.13.
#include <bit>
#include <string>

#include "block.h"
#include "order.h"
#include "tables.h"
#include "team.h"

namespace ptx {
namespace {

void check_members(const Team& t, const uint32_t* members, int lane) {
  for (int other = lane / kWarp * kWarp, k = 0; k < kWarp; ++k, ++other) {
    if ((members[lane] >> k & 1) && !t.active[other]) {
      throw Fault("synccheck: lane " + std::to_string(k) +
                      " of the warp should take part, but is not there",
                  lane);
    }
  }
}

// The lane whose number `lane` receives, or -1 for its own.
using Source = int (*)(int lane, int b, int clamp, int segment);
int butterfly(int lane, int b, int clamp, int segment) {
  const int source = lane ^ b;
  return source <= ((lane & segment) | (clamp & ~segment)) ? source : -1;
}
int indexed(int lane, int b, int clamp, int segment) {
  const int source = (lane & segment) | (b & ~segment);
  return source <= ((lane & segment) | (clamp & ~segment)) ? source : -1;
}
int upwards(int lane, int b, int clamp, int segment) {
  const int source = lane - b;
  return source >= ((lane & segment) | (clamp & ~segment)) ? source : -1;
}
int downwards(int lane, int b, int clamp, int segment) {
  const int source = lane + b;
  return source <= ((lane & segment) | (clamp & ~segment)) ? source : -1;
}

// d[|p], a, b, c, members
template <Source source>
void shuffle(Team& t, const Instruction& i) {
  auto* d = t.column<uint32_t>(i.operands[0]);
  auto* p = t.column<bool>(i.operands[1]);
  const auto* b = t.column<const uint32_t>(i.operands[3]);
  const auto* c = t.column<const uint32_t>(i.operands[4]);
  const auto* members = t.column<const uint32_t>(i.operands[5]);
  uint32_t a[kLanes];
  std::memcpy(a, t.column<const uint32_t>(i.operands[2]), sizeof a);
  for_each_active(t, [&](int lane) {
    check_members(t, members, lane);
    const int own = lane % kWarp;
    const int from = source(own, static_cast<int>(b[lane] & 31), static_cast<int>(c[lane] & 31),
                            static_cast<int>(c[lane] >> 8 & 31));
    const int giver = lane - own + (from < 0 ? own : from);
    if (!t.active[giver]) {
      throw Fault("synccheck: a shuffle takes the number of a lane that is not there", lane);
    }
    d[lane] = a[giver];
    p[lane] = from >= 0;
  });
}

// d, a, members
template <class T, T (*f)(T, T)>
void reduce(Team& t, const Instruction& i) {
  auto* d = t.column<T>(i.operands[0]);
  const auto* members = t.column<const uint32_t>(i.operands[2]);
  T a[kLanes];
  std::memcpy(a, t.column<const T>(i.operands[1]), sizeof a);
  for_each_active(t, [&](int lane) {
    check_members(t, members, lane);
    const T* const of_warp = a + lane / kWarp * kWarp;
    int k = std::countr_zero(members[lane]);
    T result = of_warp[k];
    while (++k < kWarp) {
      if (members[lane] >> k & 1) result = f(result, of_warp[k]);
    }
    d[lane] = result;
  });
}

void wait_for_warp(Team& t, const Instruction& i) {
  const auto* members = t.column<const uint32_t>(i.operands[0]);
  for_each_active(t, [&](int lane) {
    check_members(t, members, lane);
    if (members[lane] != 0xffffffff)
      throw Fault("the machine knows no barrier of some lanes", lane);
    if (lane % kWarp == 0) t.block->shared.pass_barrier_of_warp(t.first_thread + lane);
  });
}

void wait_for_primary(Team& t, const Instruction&) {
  for_each_active(t, [&](int lane) { t.block->waited[t.first_thread + lane] = true; });
}
// Does nothing: here a kernel starts when the previous one has ended.
void launch_dependents(Team&, const Instruction&) {}

bool both(bool a, bool b) { return a && b; }
uint32_t sum(uint32_t a, uint32_t b) { return a + b; }

}  // namespace

void add_warp_operations(Table& table) {
  const std::vector<uint8_t> widths = {4, 1, 4, 4, 4, 4};
  table["shfl.sync.bfly.b32"] = {shuffle<butterfly>, widths};
  table["shfl.sync.idx.b32"] = {shuffle<indexed>, widths};
  table["shfl.sync.up.b32"] = {shuffle<upwards>, widths};
  table["shfl.sync.down.b32"] = {shuffle<downwards>, widths};
  table["bar.warp.sync"] = {wait_for_warp, {4}};
  table["griddepcontrol.wait"] = {wait_for_primary, {}};
  table["griddepcontrol.launch_dependents"] = {launch_dependents, {}};
  table["vote.sync.all.pred"] = {reduce<bool, both>, {1, 1, 4}};
  table["redux.sync.add.s32"] = {reduce<uint32_t, sum>, {4, 4, 4}};
  table["redux.sync.max.u32"] = {reduce<uint32_t, maximum>, {4, 4, 4}};
  table["redux.sync.max.s32"] = {reduce<int32_t, maximum>, {4, 4, 4}};
}

}  // namespace ptx
