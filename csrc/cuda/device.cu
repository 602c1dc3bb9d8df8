// A device's name and compute capability, for messages.
#include "csrc/cuda/kernels.h"

namespace gelu_kernels::cuda {

Device describe(int device) {
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) cudaGetLastError();
  return {properties.name,
          std::to_string(properties.major) + "." + std::to_string(properties.minor)};
}

}  // namespace gelu_kernels::cuda
