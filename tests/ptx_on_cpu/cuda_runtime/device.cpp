// Devices: which is current, the kernels that are loaded there, what fails, and the text of an
// error.
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "kernels.h"
#include "stub.h"

// What a kernel did, if it was stopped.
PTX_ON_CPU_EXPORT char ptx_on_cpu_fault[4096];
char ptx_on_cpu_fault[4096];

namespace ptx_on_cpu {
namespace {

constexpr int kDevices = 128;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int64_t> devices_set = 0;

std::mutex loading;
std::set<std::pair<int, const void*>> loaded;              // kernels, each on a device
std::map<std::pair<int, const void*>, int> dynamic_bytes;  // of shared memory, where asked for
int ptx_version = 0;
bool captures = false;
cudaError_t planned_error = cudaSuccess;

// Of the errors that the stub or a test gives.
struct Words {
  const char *name, *text;
};

Words words_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
      return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
    case cudaErrorInvalidDevice:
      return {"cudaErrorInvalidDevice", "invalid device ordinal"};
    case cudaErrorNoKernelImageForDevice:
      return {"cudaErrorNoKernelImageForDevice",
              "no kernel image is available for execution on the device"};
    case cudaErrorLaunchFailure:
      return {"cudaErrorLaunchFailure", ptx_on_cpu_fault};
    case cudaErrorStreamCaptureUnsupported:
      return {"cudaErrorStreamCaptureUnsupported",
              "operation not permitted when stream is capturing"};
    default:
      return {"cudaErrorUnknown", "unknown error"};
  }
}

}  // namespace

cudaError_t failed(cudaError_t error) { return last_error = error; }

cudaError_t load(const void* kernel) {
  if (!name_of(kernel)) return failed(cudaErrorInvalidDeviceFunction);
  const std::lock_guard lock(loading);
  if (const auto error = std::exchange(planned_error, cudaSuccess)) return failed(error);
  const std::pair here(current_device, kernel);
  if (loaded.count(here)) return cudaSuccess;
  if (captures) return failed(cudaErrorStreamCaptureUnsupported);
  loaded.insert(here);
  return cudaSuccess;
}

size_t most_dynamic_bytes(const void* kernel) {
  const std::lock_guard lock(loading);
  const auto asked = dynamic_bytes.find({current_device, kernel});
  return asked == dynamic_bytes.end() ? 48 * 1024 : static_cast<size_t>(asked->second);
}

}  // namespace ptx_on_cpu

using namespace ptx_on_cpu;

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
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", "Processor");
  properties->major = 7;
  properties->minor = 5;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  attributes->ptxVersion = ptx_version;
  return load(kernel);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  constexpr int most = 227 * 1024;  // of compute capability 9.0
  if (!name_of(kernel)) return failed(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > most) {
    return failed(cudaErrorInvalidValue);
  }
  const std::lock_guard lock(loading);
  dynamic_bytes[{current_device, kernel}] = value;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) { return words_of(error).name; }

const char* cudaGetErrorString(cudaError_t error) { return words_of(error).text; }

PTX_ON_CPU_EXPORT int ptx_on_cpu_current_device() { return current_device; }
PTX_ON_CPU_EXPORT void ptx_on_cpu_set_current_device(int device) { current_device = device; }

// So often a device was made the current one.
PTX_ON_CPU_EXPORT int64_t ptx_on_cpu_devices_set() { return devices_set; }

PTX_ON_CPU_EXPORT int64_t ptx_on_cpu_loaded() { return static_cast<int64_t>(loaded.size()); }

// Of the kernels that are loaded from now on, such as 90.
PTX_ON_CPU_EXPORT void ptx_on_cpu_set_ptx_version(int version) { ptx_version = version; }

// No kernel can be loaded while this is on, as in the capture of a graph.
PTX_ON_CPU_EXPORT void ptx_on_cpu_capture(bool on) { captures = on; }

// The next kernel to be loaded or started fails.
PTX_ON_CPU_EXPORT void ptx_on_cpu_fail_next(int error) {
  planned_error = static_cast<cudaError_t>(error);
}

// 0 if none is left for the next call to report.
PTX_ON_CPU_EXPORT int ptx_on_cpu_last_error() { return last_error; }
