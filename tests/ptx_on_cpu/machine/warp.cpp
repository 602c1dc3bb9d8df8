// What the lanes of a warp exchange, and their wait for the kernel ahead. PTX ISA 9.0, sections
// 9.7.9.6 and 9.7.13.
#include <string>

#include "block.h"
#include "extremes.h"
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

// Which lane gives lane its number, or -1 for itself.
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
    T result = a[lane];
    for (int k = 0; k < kWarp; ++k) {
      if (members[lane] >> k & 1) result = f(result, of_warp[k]);
    }
    d[lane] = result;
  });
}

void pass_barrier(Team& t, const Instruction& i) {
  const auto* members = t.column<const uint32_t>(i.operands[0]);
  for_each_active(t, [&](int lane) {
    check_members(t, members, lane);
    if (members[lane] != ~uint32_t{0} || lane % kWarp) return;
    t.block->shared.pass_barrier(uint32_t{1} << (t.first_thread + lane) / kWarp);
  });
}

void wait_for_primary(Team& t, const Instruction&) {
  for_each_active(t, [&](int lane) { t.block->waited[t.first_thread + lane] = true; });
}
// Here a kernel starts when the one ahead of it has ended.
void launch_dependents(Team&, const Instruction&) {}

bool both(bool a, bool b) { return a && b; }
bool either(bool a, bool b) { return a || b; }

template <class T, T (*f)(T, T)>
Operation reduction() {
  return {reduce<T, f>, {sizeof(T), sizeof(T), 4}};
}

}  // namespace

void add_warp_operations(Table& table) {
  const std::vector<uint8_t> widths = {4, 1, 4, 4, 4, 4};
  table["shfl.sync.bfly.b32"] = {shuffle<butterfly>, widths};
  table["shfl.sync.idx.b32"] = {shuffle<indexed>, widths};
  table["shfl.sync.up.b32"] = {shuffle<upwards>, widths};
  table["shfl.sync.down.b32"] = {shuffle<downwards>, widths};
  table["bar.warp.sync"] = {pass_barrier, {4}};
  table["griddepcontrol.wait"] = {wait_for_primary, {}};
  table["griddepcontrol.launch_dependents"] = {launch_dependents, {}};
  table["vote.sync.all.pred"] = reduction<bool, both>();
  table["vote.sync.any.pred"] = reduction<bool, either>();
  table["redux.sync.min.u32"] = reduction<uint32_t, minimum>();
  table["redux.sync.max.u32"] = reduction<uint32_t, maximum>();
  table["redux.sync.min.s32"] = reduction<int32_t, minimum>();
  table["redux.sync.max.s32"] = reduction<int32_t, maximum>();
  table["redux.sync.min.f32"] = reduction<float, minimum>();
  table["redux.sync.max.f32"] = reduction<float, maximum>();
  table["redux.sync.min.NaN.f32"] = reduction<float, minimum_or_nan>();
  table["redux.sync.max.NaN.f32"] = reduction<float, maximum_or_nan>();
}

}  // namespace ptx
