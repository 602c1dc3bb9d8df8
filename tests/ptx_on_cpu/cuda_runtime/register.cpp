// Functions that nvcc's host code calls when it is loaded, to tell the runtime of its kernels. No
// header documents them; the prototypes match crt/host_runtime.h.
#include <map>

#include "kernels.h"

namespace ptx_on_cpu {
namespace {

// A function, as the objects of the .cu files may be initialised before this one.
std::map<const void*, const char*>& names() {
  static std::map<const void*, const char*> names;
  return names;
}

}  // namespace

const char* name_of(const void* kernel) {
  const auto found = names().find(kernel);
  return found == names().end() ? nullptr : found->second;
}

}  // namespace ptx_on_cpu

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return true; }

void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  ptx_on_cpu::names()[kernel] = name;
}

// The machine has variables of its own.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

// For kernel<<<grid, block>>>(), which nothing here says.
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
  return cudaErrorNotSupported;
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaErrorNotSupported;
}

}  // extern "C"
