// Runs the threads of a block, those that are furthest behind first: divergent paths meet again
// where they can.
#include "block.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ptx {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// A kernel that executes more instructions is taken to loop for ever.
constexpr int64_t kMostSteps = int64_t{1} << 28;

}  // namespace

// The lanes that the guard of an instruction lets execute it.
struct Guard {
  Guard(Team& t, const Instruction& i)
      : predicate(i.guard < 0 ? nullptr : t.column<bool>(i.guard)), negated(i.guard_negated) {}
  bool operator()(int lane) const { return !predicate || predicate[lane] != negated; }

  const bool* predicate;
  bool negated;
};

// The state and the next instruction of each thread of a team.
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
      shared(program.shared_bytes + shared_bytes, grid.threads_of_block()),
      copies(grid.threads_of_block()),
      is_dependent(is_dependent),
      waited(grid.threads_of_block()) {
  const int threads = static_cast<int>(waited.size());
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
      // As Special numbers them.
      const uint32_t* const registers[] = {tid, grid.threads, index, grid.blocks};
      numbers[lane] = registers[static_cast<int>(which)][axis];
    }
  }
}

void Block::run(const uint32_t (&index)[3]) {
  shared.reset();
  copies.assign(copies.size(), {});
  order.begin_block();
  this->index = (int64_t{index[2]} * grid.blocks[1] + index[1]) * grid.blocks[0] + index[0];
  for (auto& s : schedules_) start(*s, index);
  waited.assign(waited.size(), false);
  do {
    for (auto& s : schedules_) advance(*s);
  } while (pass_barrier());
}

// No thread can run: false if all have ended. Otherwise all of them must wait at the same barrier.
bool Block::pass_barrier() {
  constexpr int kNoThread = -1;
  int ended = kNoThread, apart = kNoThread;
  int64_t barrier = kNone;
  for (const auto& s : schedules_) {
    for (int lane = 0; lane < s->team.threads; ++lane) {
      const int thread = s->team.first_thread + lane;
      if (s->state[lane] == Schedule::exited) {
        ended = thread;
      } else if (barrier == kNone) {
        barrier = s->next[lane];
      } else if (s->next[lane] != barrier) {
        apart = thread;
      }
    }
  }
  if (barrier == kNone) return false;
  const auto fail = [](int thread, const char* what) {
    throw Fault("synccheck: thread " + std::to_string(thread) + what);
  };
  if (ended != kNoThread) fail(ended, " has ended, others wait at a barrier");
  if (apart != kNoThread) fail(apart, " waits at another barrier than others");
  shared.pass_barrier();
  for (auto& s : schedules_) std::fill_n(s->state, s->team.threads, Schedule::running);
  return true;
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
      });
    }
  }
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

// Selects the lanes anew if they diverge.
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
