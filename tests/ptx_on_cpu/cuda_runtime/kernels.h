// The kernels of the process, by the addresses that the host's code knows them by.
#pragma once

#include <cuda_runtime_api.h>

namespace ptx_on_cpu {

// The name that the PTX has for it; null if it is no kernel.
const char* name_of(const void* kernel);

// Onto the current device, unless it is there.
cudaError_t load(const void* kernel);

// Of shared memory in a launch, on the current device.
size_t most_dynamic_bytes(const void* kernel);

// The same error, for cudaGetLastError as well.
cudaError_t failed(cudaError_t error);

}  // namespace ptx_on_cpu
