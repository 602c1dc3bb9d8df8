// Runs the threads of a block: those that are furthest behind first, so that the paths of a branch
// meet again where they can.
#include "block.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ptx {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// A kernel that executes more has lost its way.
constexpr int64_t kMostSteps = int64_t{1} << 28;

}  // namespace

// Which lanes an instruction is for.
struct Guard {
  Guard(Team& t, const Instruction& i)
      : predicate(i.guard < 0 ? nullptr : t.column<bool>(i.guard)), negated(i.guard_negated) {}
  bool operator()(int lane) const { return !predicate || predicate[lane] != negated; }

  const bool* predicate;
  bool negated;
};

// Where the threads of a team are.
struct Block::Schedule {
  Team team;
  enum State : uint8_t { running, at_barrier, exited } state[kLanes];
  int64_t next[kLanes];  // instruction of each lane that does not execute now
  int64_t here, others;  // the active lanes' instruction, and the first of the other lanes'
  int64_t steps;
};

Block::Block(Program& program, const Grid& grid, const std::vector<char>& parameters,
             const std::vector<Region>& regions, size_t shared_bytes, bool is_dependent)
    : program(program),
      grid(grid),
      parameters(parameters),
      regions(regions),
      shared(program.shared_bytes + shared_bytes),
      is_dependent(is_dependent),
      barriers_(static_cast<int>(grid.threads[0] * grid.threads[1] * grid.threads[2])) {
  const int threads = barriers_.threads();
  waited.resize(static_cast<size_t>(threads));
  for (int first = 0; first < threads; first += kLanes) {
    auto s = std::make_unique<Schedule>();
    s->team.block = this;
    s->team.first_thread = first;
    s->team.threads = std::min(threads - first, kLanes);
    s->team.registers.reset(new (kVectorAlignment) char[program.register_bytes]);
    std::memset(s->team.registers.get(), 0xff, program.register_bytes);
    for (const auto& [column, width, bits] : program.constants) {
      for (int lane = 0; lane < kLanes; ++lane) {
        std::memcpy(s->team.registers.get() + column + lane * width, &bits, width);
      }
    }
    schedules_.push_back(std::move(s));
  }
}

Block::~Block() = default;

void Block::start(Schedule& s, const uint32_t (&index)[3]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    s.state[lane] = lane < s.team.threads ? Schedule::running : Schedule::exited;
    s.next[lane] = 0;
  }
  s.steps = 0;
  for (const auto& [column, which, axis] : program.special_registers) {
    auto* numbers = s.team.column<uint32_t>(column);
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto thread = static_cast<uint32_t>(s.team.first_thread + lane);
      const uint32_t tid[] = {thread % grid.threads[0], thread / grid.threads[0] % grid.threads[1],
                              thread / grid.threads[0] / grid.threads[1]};
      switch (which) {
        case Special::tid:
          numbers[lane] = tid[axis];
          break;
        case Special::ntid:
          numbers[lane] = grid.threads[axis];
          break;
        case Special::ctaid:
          numbers[lane] = index[axis];
          break;
        case Special::nctaid:
          numbers[lane] = grid.blocks[axis];
          break;
        case Special::laneid:
          numbers[lane] = thread % kWarp;
          break;
      }
    }
  }
}

void Block::run(const uint32_t (&index)[3]) {
  if (shared.size()) shared.reset();
  for (auto& s : schedules_) start(*s, index);
  barriers_.reset();
  waited.assign(waited.size(), false);
  for (;;) {
    bool waits = false;
    for (auto& s : schedules_) {
      advance(*s);
      for (const auto state : s->state) waits |= state == Schedule::at_barrier;
    }
    if (!waits) return;
    const Barriers::Threads passed = barriers_.pass(shared);
    for (auto& s : schedules_) {
      for (int lane = 0; lane < s->team.threads; ++lane) {
        if (passed[s->team.first_thread + lane]) s->state[lane] = Schedule::running;
      }
    }
  }
}

// The lanes that are furthest behind; false if none can run.
bool Block::select(Schedule& s) {
  s.here = s.others = kNone;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (s.state[lane] == Schedule::running) s.here = std::min(s.here, s.next[lane]);
  }
  s.team.all_active = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool runs = s.state[lane] == Schedule::running;
    s.team.active[lane] = runs && s.next[lane] == s.here;
    s.team.all_active &= s.team.active[lane];
    if (runs && !s.team.active[lane]) s.others = std::min(s.others, s.next[lane]);
  }
  return s.here != kNone;
}

// Until all lanes have exited or wait at a barrier.
void Block::advance(Schedule& s) {
  while (select(s)) {
    bool together = true;
    while (together) {
      if (s.here >= s.others) {
        for_each_active(s.team, [&](int lane) { s.next[lane] = s.here; });
        break;
      }
      const Instruction& i = program.code[s.here];
      fault_instruction = s.here;
      ++program.executed[s.here];
      if (++s.steps > kMostSteps) throw Fault("synccheck: the kernel does not end");
      if (i.kind == Kind::plain) {
        execute(s, i);
        ++s.here;
        continue;
      }
      together = false;
      if (i.kind == Kind::branch) {
        branch(s, i);
        together = s.here != kNone;
        continue;
      }
      const Guard is_for(s.team, i);
      for_each_active(s.team, [&](int lane) {
        s.next[lane] = s.here + 1;
        if (!is_for(lane)) return;
        s.state[lane] = i.kind == Kind::exit ? Schedule::exited : Schedule::at_barrier;
        if (i.kind == Kind::barrier) wait(s, i, lane);
      });
    }
  }
}

// The operands are the barrier's number and how many threads meet there, if that is said.
void Block::wait(Schedule& s, const Instruction& i, int lane) {
  const uint32_t barrier = s.team.column<uint32_t>(i.operands[0])[lane];
  const uint32_t expected = i.operands[1] < 0 ? 0 : s.team.column<uint32_t>(i.operands[1])[lane];
  barriers_.wait(s.team.first_thread + lane, barrier, expected, s.next[lane]);
}

void Block::execute(Schedule& s, const Instruction& i) {
  Team& t = s.team;
  try {
    if (i.guard < 0) return i.run(t, i);
    const Guard is_for(t, i);
    bool before[kLanes];
    std::memcpy(before, t.active, sizeof before);
    const bool all_before = t.all_active;
    bool any = false, all = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      t.active[lane] = before[lane] && is_for(lane);
      any |= t.active[lane];
      all &= t.active[lane];
    }
    t.all_active = all;
    if (any) i.run(t, i);
    std::memcpy(t.active, before, sizeof before);
    t.all_active = all_before;
  } catch (const Fault& fault) {
    fault_thread = t.first_thread + fault.lane;
    throw;
  }
}

// If the lanes part, they are selected anew.
void Block::branch(Schedule& s, const Instruction& i) {
  const Guard is_for(s.team, i);
  bool any = false, all = true;
  for_each_active(s.team, [&](int lane) {
    const bool taken = is_for(lane);
    any |= taken;
    all &= taken;
    s.next[lane] = taken ? i.target : s.here + 1;
  });
  s.here = all ? i.target : any ? kNone : s.here + 1;
}

}  // namespace ptx
