// Launches: their limits. Python runs the kernel before the launch returns.
#include <atomic>
#include <limits>

#include "kernels.h"
#include "stub.h"

namespace {

// The name of a kernel, its grid and block, the bytes of shared memory, pointers to the values of
// its parameters, and whether it may start before the kernel ahead of it has ended. False if it was
// stopped.
using Run = bool (*)(const char*, const unsigned* grid, const unsigned* block, size_t shared,
                     void** parameters, bool is_dependent);

Run run;
std::atomic<int64_t> launches = 0;
std::atomic<int> device_of_last = 0;
std::atomic<int64_t> dependent_launches = 0;

bool fits(const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  return grid.x >= 1 && grid.x <= std::numeric_limits<int32_t>::max() && block.x >= 1 &&
         block.x <= 1024 && grid.y == 1 && grid.z == 1 && block.y == 1 && block.z == 1 &&
         config.numAttrs <= 1;
}

bool is_early(const cudaLaunchAttribute& attribute) {
  return attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
         attribute.val.programmaticStreamSerializationAllowed == 1;
}

}  // namespace

using namespace ptx_on_cpu;

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** parameters) {
  if (!fits(*config) || config->dynamicSmemBytes > most_dynamic_bytes(kernel) ||
      config->stream != callers_stream()) {
    return failed(cudaErrorInvalidConfiguration);
  }
  if (const cudaError_t error = load(kernel)) return error;
  const bool is_dependent = config->numAttrs == 1;
  if (is_dependent && !is_early(config->attrs[0])) return failed(cudaErrorNotSupported);
  ++launches;
  dependent_launches += is_dependent;
  int device;
  cudaGetDevice(&device);
  device_of_last = device;
  const dim3 grid = config->gridDim, block = config->blockDim;
  const unsigned blocks[] = {grid.x, grid.y, grid.z}, threads[] = {block.x, block.y, block.z};
  const bool ran =
      run(name_of(kernel), blocks, threads, config->dynamicSmemBytes, parameters, is_dependent);
  return ran ? cudaSuccess : failed(cudaErrorLaunchFailure);
}

PTX_ON_CPU_EXPORT void ptx_on_cpu_run_kernels_by(Run function) { run = function; }

PTX_ON_CPU_EXPORT int64_t ptx_on_cpu_launches() { return launches; }

PTX_ON_CPU_EXPORT int64_t ptx_on_cpu_dependent_launches() { return dependent_launches; }

PTX_ON_CPU_EXPORT int ptx_on_cpu_device_of_last() { return device_of_last; }
