// Launches: their limits and their blocks.
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "block.h"
#include "cuda_runtime.h"
#include "export.h"
#include "stream.h"

namespace cuda_on_cpu {
namespace {

std::mutex launching;
int64_t launches = 0;
int64_t blocks_at_ends = 0;
int device_of_last = 0;

bool fits(const cudaLaunchConfig_t& config) {
  const auto [grid, block] = std::pair(config.gridDim, config.blockDim);
  return grid.x >= 1 && grid.x <= std::numeric_limits<int32_t>::max() && block.x >= 1 &&
         block.x <= 1024 && grid.y == 1 && grid.z == 1 && block.y == 1 && block.z == 1;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   const std::function<void()>& thread) {
  const std::lock_guard lock(launching);
  if (!fits(config) || config.stream != callers_stream()) {
    return failed(cudaErrorInvalidConfiguration);
  }
  if (const cudaError_t error = load(kernel)) return error;
  ++launches;
  cudaGetDevice(&device_of_last);
  const int64_t blocks = config.gridDim.x;
  const bool is_cut = blocks_at_ends > 0 && blocks > 2 * blocks_at_ends;
  const int64_t count = is_cut ? 2 * blocks_at_ends : blocks;

  std::atomic<int64_t> next = 0;
  std::exception_ptr failures[2];
  const auto work = [&](std::exception_ptr& failure) {
    try {
      Block block(config.blockDim.x, thread);
      for (int64_t i = next++; i < count; i = next++) {
        const int64_t index = is_cut && i >= blocks_at_ends ? blocks - count + i : i;
        block.run(static_cast<unsigned>(index));
      }
    } catch (...) {
      failure = std::current_exception();
    }
  };
  {
    std::jthread other;
    constexpr int64_t kWorthAThread = 8;
    if (count >= kWorthAThread) other = std::jthread(work, std::ref(failures[1]));
    work(failures[0]);
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

CUDA_ON_CPU_EXPORT int64_t cuda_on_cpu_launches() { return cuda_on_cpu::launches; }

CUDA_ON_CPU_EXPORT int cuda_on_cpu_device_of_last() { return cuda_on_cpu::device_of_last; }

// Of a longer launch only so many blocks run at either end; 0 is no limit.
CUDA_ON_CPU_EXPORT void cuda_on_cpu_run_ends(int64_t blocks) {
  cuda_on_cpu::blocks_at_ends = blocks;
}
