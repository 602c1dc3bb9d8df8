#include "barriers.h"

#include <algorithm>
#include <bit>
#include <string>

#include "program.h"

namespace ptx {
namespace {

[[noreturn]] void fail(int thread, const std::string& what) {
  throw Fault("synccheck: thread " + std::to_string(thread) + " " + what);
}

// A bit for each.
uint32_t warps_of(const std::vector<int>& threads) {
  uint32_t warps = 0;
  for (const int thread : threads) warps |= uint32_t{1} << thread / kWarp;
  return warps;
}

}  // namespace

void Barriers::reset() { std::ranges::fill(waiting_, Waiting{}); }

void Barriers::wait(int thread, uint32_t barrier, uint32_t expected, int64_t next) {
  if (barrier >= kCount) fail(thread, "waits at barrier " + std::to_string(barrier) + " of 16");
  if (expected % kWarp) fail(thread, "waits at a barrier for a part of a warp");
  waiting_[thread] = {static_cast<int>(barrier), static_cast<int>(expected), next};
}

// The whole block must be at the same instruction, others must be whole warps.
bool Barriers::is_complete(const std::vector<int>& threads) const {
  const Waiting& first = waiting_[threads[0]];
  const size_t expected = first.expected ? first.expected : waiting_.size();
  for (const int thread : threads) {
    const bool is_other = !first.expected && waiting_[thread].next != first.next;
    if (is_other || waiting_[thread].expected != first.expected) {
      fail(thread, "waits at another barrier than thread " + std::to_string(threads[0]));
    }
  }
  if (threads.size() > expected) fail(threads[expected], "is one too many at a barrier");
  if (threads.size() < expected) return false;
  if (first.expected && kWarp * std::popcount(warps_of(threads)) != first.expected) {
    fail(threads[0], "waits at a barrier that not all of a warp have reached");
  }
  return true;
}

Barriers::Threads Barriers::pass(SharedMemory& shared) {
  std::vector<int> threads_at[kCount];
  for (int thread = 0; thread < this->threads(); ++thread) {
    const int barrier = waiting_[thread].barrier;
    if (barrier != kNowhere) threads_at[barrier].push_back(thread);
  }
  Threads passed;
  for (const std::vector<int>& threads : threads_at) {
    if (threads.empty() || !is_complete(threads)) continue;
    shared.pass_barrier(threads.size() == waiting_.size() ? ~uint32_t{0} : warps_of(threads));
    for (const int thread : threads) {
      passed[thread] = true;
      waiting_[thread].barrier = kNowhere;
    }
  }
  if (passed.none()) fail_for_ever();
  return passed;
}

void Barriers::fail_for_ever() const {
  const auto ended = std::ranges::find(waiting_, int{kNowhere}, &Waiting::barrier);
  if (ended != waiting_.end()) {
    fail(static_cast<int>(ended - waiting_.begin()), "has ended, others wait at a barrier");
  }
  const auto other = std::ranges::find_if(
      waiting_, [&](const Waiting& w) { return w.barrier != waiting_[0].barrier; });
  if (other == waiting_.end()) fail(0, "waits at a barrier for more threads than there are");
  fail(static_cast<int>(other - waiting_.begin()), "waits at another barrier than thread 0");
}

}  // namespace ptx
