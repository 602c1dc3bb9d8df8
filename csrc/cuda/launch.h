// The one way to start a kernel, and the tables in which launchers are found.
#pragma once

#include <cuda_runtime.h>

#include "csrc/cuda/kernels.h"

namespace gelu_kernels::cuda {

template <class... Parameters>
Error launch(Queue queue, void (*kernel)(Parameters...), int64_t blocks, int threads,
             Parameters... arguments) {
  // This library has a CUDA runtime of its own, with its own idea of the current device.
  cudaError_t error = cudaSetDevice(queue.device);
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.stream = static_cast<cudaStream_t>(queue.stream);
    error = cudaLaunchKernelEx(&config, kernel, arguments...);
  }
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // it is reported here, not by the next call as well
  return cudaGetErrorString(error);
}

// Entry<Type, Precision>::value for a gate and a dtype. Static, because g++ merges the instances of
// several files for templates of the same name, even if each is in an anonymous namespace.
template <template <class, class> class Entry>
static auto find(Gate gate, Dtype dtype) {
  static constexpr decltype(Entry<Normal, fp32>::value) table[][4] = {
#define GELU_KERNELS_ROW(name, Type, approximate)                                \
  {Entry<Type, fp64>::value, Entry<Type, fp32>::value, Entry<Type, fp16>::value, \
   Entry<Type, bf16>::value},
      GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_ROW)
#undef GELU_KERNELS_ROW
  };
  return table[static_cast<int>(gate)][static_cast<int>(dtype)];
}

}  // namespace gelu_kernels::cuda
