// Devices: which is current, the kernels that are loaded there, and what fails.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "cuda_runtime.h"
#include "export.h"

namespace cuda_on_cpu {
namespace {

constexpr int kDevices = 128;

std::atomic<int> current_device = 0;  // of all threads: a block fills thread-local variables
std::atomic<int64_t> devices_set = 0;

std::mutex loading;
std::set<std::pair<int, const void*>> loaded;  // kernels, each on a device
bool captures = false;

std::atomic<cudaError_t> planned_error = cudaSuccess, last_error = cudaSuccess;

}  // namespace

cudaError_t failed(cudaError_t error) { return last_error = error; }

cudaError_t load(const void* kernel) {
  const std::lock_guard lock(loading);
  if (const cudaError_t error = planned_error.exchange(cudaSuccess)) return failed(error);
  const std::pair here(current_device.load(), kernel);
  if (loaded.contains(here)) return cudaSuccess;
  if (captures) return failed(cudaErrorStreamCaptureUnsupported);
  loaded.insert(here);
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  ++devices_set;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= kDevices) return failed(cudaErrorInvalidDevice);
  std::snprintf(properties->name, sizeof properties->name, "%s", "Processor");
  properties->major = 7;
  properties->minor = 5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return last_error.exchange(cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "unknown error";
  }
}

CUDA_ON_CPU_EXPORT int cuda_on_cpu_current_device() { return current_device; }
CUDA_ON_CPU_EXPORT void cuda_on_cpu_set_current_device(int device) { current_device = device; }

// So often a device was made the current one.
CUDA_ON_CPU_EXPORT int64_t cuda_on_cpu_devices_set() { return devices_set; }

CUDA_ON_CPU_EXPORT int64_t cuda_on_cpu_loaded() { return static_cast<int64_t>(loaded.size()); }

// No kernel can be loaded while this is on, as in the capture of a graph.
CUDA_ON_CPU_EXPORT void cuda_on_cpu_capture(bool on) { captures = on; }

// The next kernel to be loaded or started fails.
CUDA_ON_CPU_EXPORT void cuda_on_cpu_fail_next(int error) {
  planned_error = static_cast<cudaError_t>(error);
}

// 0 if none is left for the next call to report.
CUDA_ON_CPU_EXPORT int cuda_on_cpu_last_error() { return last_error; }
