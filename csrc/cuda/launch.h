// The one way to start a kernel, and the tables in which launchers are found.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

#include "csrc/cuda/kernels.h"

namespace gelu_kernels::cuda {

constexpr int kMaxDevices = 128;  // torch's own limit is 120

// Makes a device the current one for as long as this lives. Every runtime in a process, this
// library's and torch's, takes the device of the driver's current context (CUDA Runtime API,
// "Interactions with the CUDA Driver API"), so after torch's guard this only asks: to set or
// restore a device may make a context there. Had each runtime a device of its own, this one's would
// be kept.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : error_(cudaGetDevice(&before_)) {
    is_another_ = error_ == cudaSuccess && before_ != device;
    if (is_another_) error_ = cudaSetDevice(device);
  }
  ~CurrentDevice() {
    if (is_another_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool is_another_;
  cudaError_t error_;
};

// The kernels of an operator for a gate and a dtype, whatever the size and layout of its operands.
// CUDA loads a kernel at its first use, which drivers before CUDA 12.3 refuse in the capture of a
// graph (documentation of NVIDIA Warp, capture_begin). So the first launch on a device loads all of
// them, and a small warm-up does for the capture of a large call.
template <auto... kernels>
struct KernelSet {
  static cudaError_t load(int device) {
    if (versions[device]) return cudaSuccess;
    cudaError_t error = cudaSuccess;
    cudaFuncAttributes attributes;
    // This loads a kernel without starting it (CUDA Programming Guide, 4.7.4.3).
    const auto is_loaded = [&](auto kernel) {
      error = cudaFuncGetAttributes(&attributes, kernel);
      return error == cudaSuccess;
    };
    if ((is_loaded(kernels) && ...)) versions[device] = attributes.ptxVersion;
    return error;
  }
  // Whether wait_for_primary() waits in the code that was loaded. The device does not say: one of
  // compute capability 9.0 may run code that was compiled for 8.0.
  static bool can_wait(int device) { return versions[device] >= 90; }

 private:
  static inline std::atomic<int> versions[kMaxDevices];  // of their PTX; 0 before they are loaded
};

// Programmatic dependent launch: a kernel may start, and wait, before the primary kernel, the one
// ahead of it in the stream, has ended. So the time of its launch, some 3 us, passes meanwhile.

// For a primary kernel: the dependent one may start as soon as every block has called this or has
// ended. By then all blocks have a place, so that none loses it to a block that waits.
__device__ __forceinline__ void start_dependent() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// For a dependent kernel: every thread calls this before it reads or writes global memory. It
// returns when the primary kernel has ended and what that wrote can be read.
__device__ __forceinline__ void wait_for_primary() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

inline Error error_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // it is reported here, not by the next call as well
  const bool lacks_binary = error == cudaErrorNoKernelImageForDevice ||
                            error == cudaErrorInvalidDeviceFunction ||
                            error == cudaErrorUnsupportedPtxVersion;
  return {error, cudaGetErrorName(error), cudaGetErrorString(error), lacks_binary};
}

// Of a block: its threads, and the shared memory that it has besides the kernel's variables.
struct BlockSize {
  int threads, shared_bytes = 0;

  BlockSize(int threads) : threads(threads) {}
};

template <class Kernels, class... Parameters>
Error start(Queue queue, bool is_dependent, void (*kernel)(Parameters...), int64_t blocks,
            BlockSize block, Parameters... arguments) {
  const CurrentDevice device(queue.device);
  if (const cudaError_t error = device.error()) return error_of(error);
  if (const cudaError_t error = Kernels::load(queue.device)) return error_of(error);
  if (block.shared_bytes != 0) {  // more than 48 kB only for a kernel that asks
    constexpr auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const cudaError_t error = cudaFuncSetAttribute(kernel, most, block.shared_bytes);
    if (error) return error_of(error);
  }
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(block.threads));
  config.dynamicSmemBytes = static_cast<size_t>(block.shared_bytes);
  config.stream = static_cast<cudaStream_t>(queue.stream);
  config.attrs = &early;
  config.numAttrs = is_dependent && Kernels::can_wait(queue.device);
  return error_of(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// Starts a kernel of a set.
template <class Kernels, class... Parameters>
Error launch(Queue queue, void (*kernel)(Parameters...), int64_t blocks, BlockSize block,
             Parameters... arguments) {
  return start<Kernels>(queue, false, kernel, blocks, block, arguments...);
}

// The same for a kernel that calls wait_for_primary().
template <class Kernels, class... Parameters>
Error launch_dependent(Queue queue, void (*kernel)(Parameters...), int64_t blocks, BlockSize block,
                       Parameters... arguments) {
  return start<Kernels>(queue, true, kernel, blocks, block, arguments...);
}

// Entry<Type, Precision>::value for a gate and a dtype. Static, because g++ merges the instances of
// several files for templates of the same name, even if each is in an anonymous namespace.
template <template <class, class> class Entry>
static auto find(Gate gate, Dtype dtype) {
  static constexpr decltype(Entry<Normal, fp32>::value) table[][4] = {
#define GELU_KERNELS_ROW(name, Type, ...)                                        \
  {Entry<Type, fp64>::value, Entry<Type, fp32>::value, Entry<Type, fp16>::value, \
   Entry<Type, bf16>::value},
      GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_ROW)
#undef GELU_KERNELS_ROW
  };
  return table[static_cast<int>(gate)][static_cast<int>(dtype)];
}

}  // namespace gelu_kernels::cuda
