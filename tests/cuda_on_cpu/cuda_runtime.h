// What the .cu files ask of CUDA, for g++. A launch runs its blocks on the CPU before it returns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __launch_bounds__(...)
// An operating system's thread runs one block at a time.
#define __shared__ static thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  uint32_t x, y, z, w;
};

extern thread_local constinit dim3 threadIdx, blockIdx;

using std::min;
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorStreamCaptureUnsupported = 900,
};
using cudaStream_t = struct CUstream_st*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

struct cudaFuncAttributes {};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

namespace cuda_on_cpu {

// Runs `thread` for every threadIdx and blockIdx.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   const std::function<void()>& thread);

// Onto the current device, unless it is there.
cudaError_t load(const void* kernel);

// The same error, for cudaGetLastError as well.
cudaError_t failed(cudaError_t error);

// A thread waits here for the others of its block.
void wait_at_barrier(const std::source_location& barrier);

}  // namespace cuda_on_cpu

inline void __syncthreads(std::source_location barrier = std::source_location::current()) {
  cuda_on_cpu::wait_at_barrier(barrier);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  const std::tuple<Parameters...> parameters(arguments...);
  static_assert(sizeof parameters <= 4096 && (std::is_trivially_copyable_v<Parameters> && ...));
  return cuda_on_cpu::launch(*config, reinterpret_cast<const void*>(kernel),
                             [&] { std::apply(kernel, parameters); });
}

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*kernel)(Parameters...)) {
  return cuda_on_cpu::load(reinterpret_cast<const void*>(kernel));
}
