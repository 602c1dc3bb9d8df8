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
    if (loaded[device]) return cudaSuccess;
    cudaError_t error = cudaSuccess;
    cudaFuncAttributes attributes;
    // This loads a kernel without starting it (CUDA Programming Guide, 4.7.4.3).
    const auto is_loaded = [&](auto kernel) {
      error = cudaFuncGetAttributes(&attributes, kernel);
      return error == cudaSuccess;
    };
    loaded[device] = (is_loaded(kernels) && ...);
    return error;
  }

 private:
  static inline std::atomic<bool> loaded[kMaxDevices];
};

inline Error error_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // it is reported here, not by the next call as well
  const bool lacks_binary = error == cudaErrorNoKernelImageForDevice ||
                            error == cudaErrorInvalidDeviceFunction ||
                            error == cudaErrorUnsupportedPtxVersion;
  return {error, cudaGetErrorName(error), cudaGetErrorString(error), lacks_binary};
}

// Starts a kernel of a set.
template <class Kernels, class... Parameters>
Error launch(Queue queue, void (*kernel)(Parameters...), int64_t blocks, int threads,
             Parameters... arguments) {
  const CurrentDevice device(queue.device);
  if (const cudaError_t error = device.error()) return error_of(error);
  if (const cudaError_t error = Kernels::load(queue.device)) return error_of(error);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(queue.stream);
  return error_of(cudaLaunchKernelEx(&config, kernel, arguments...));
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
