// Which of several blocks is the last to end: it goes on with what all of them have written, in
// place of a second kernel.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace gelu_kernels::cuda {

// Counts of the blocks that have ended, zero before and after every launch. The kernels of each .cu
// file have an array of their own.
constexpr int kCounters = 1 << 16;
static __device__ uint32_t counters[kCounters];

// The first of `count` counters for a launch that writes to the memory at `memory`; -1 if none are
// left. The same memory always has the same counters. So two launches share them only if they share
// memory that both write, and then one of them ends before the other begins: on one stream or
// several, and whenever a graph that was captured is replayed.
inline int counters_of(const void* memory, int64_t count) {
  struct Range {
    int first;
    int64_t count;
  };
  static std::mutex mutex;
  static auto& ranges = *new std::unordered_map<const void*, Range>;  // lives to the very end
  static int used = 0;
  const std::lock_guard lock(mutex);
  const auto found = ranges.find(memory);
  if (found != ranges.end() && found->second.count >= count) return found->second.first;
  if (count > kCounters - used) return -1;
  ranges[memory] = {used, count};
  used += static_cast<int>(count);
  return used - static_cast<int>(count);
}

// For all threads of a block: whether it is the last of `blocks` blocks. If so, it can read what
// the others have written.
__device__ __forceinline__ bool is_last_block(int counter, uint32_t blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t before;  // the count wraps to zero after the last block
    asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counters + counter), "r"(blocks - 1)
                 : "memory");
    is_last = before == blocks - 1;
  }
  __syncthreads();
  return is_last;
}

}  // namespace gelu_kernels::cuda
