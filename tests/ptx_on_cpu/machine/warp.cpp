// What the lanes of a warp exchange. PTX ISA 9.0, sections 9.7.9.6 and 9.7.13.
#include <string>

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

}  // namespace

void add_warp_operations(Table& table) {
  const std::vector<uint8_t> widths = {4, 1, 4, 4, 4, 4};
  table["shfl.sync.bfly.b32"] = {shuffle<butterfly>, widths};
  table["shfl.sync.idx.b32"] = {shuffle<indexed>, widths};
  table["shfl.sync.up.b32"] = {shuffle<upwards>, widths};
  table["shfl.sync.down.b32"] = {shuffle<downwards>, widths};
}

}  // namespace ptx
