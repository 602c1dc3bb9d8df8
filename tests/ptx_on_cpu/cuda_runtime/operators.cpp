// The operators' CUDA kernels in place of those for the CPU, for as long as they are wanted.
#include <c10/util/Exception.h>

#include <memory>

#include "csrc/ops/device/cuda.h"
#include "stub.h"

namespace gelu_kernels {

namespace {

int device = 0;
bool passes_seeds = false;

std::unique_ptr<torch::Library> library;

// torch warns of a kernel that takes another's place.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

cuda::Queue queue_of(const at::Tensor&) { return {device, callers_stream()}; }

Seed Cuda::seed_of(const at::Tensor& seed) {
  const int64_t* const data = seed.const_data_ptr<int64_t>();
  return passes_seeds ? Seed{nullptr, *data} : Seed{data, 0};
}

}  // namespace gelu_kernels

PTX_ON_CPU_EXPORT void ptx_on_cpu_enable() {
  gelu_kernels::Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  gelu_kernels::library = std::make_unique<torch::Library>(
      torch::Library::IMPL, "gelu_kernels", c10::DispatchKey::CPU, __FILE__, __LINE__);
  gelu_kernels::register_cuda_kernels(*gelu_kernels::library);
}

// The device of every tensor.
PTX_ON_CPU_EXPORT void ptx_on_cpu_put_tensors_on(int device) { gelu_kernels::device = device; }

// Seeds are the CPU's: their values are passed, and not their addresses.
PTX_ON_CPU_EXPORT void ptx_on_cpu_pass_seeds(bool on) { gelu_kernels::passes_seeds = on; }

// The kernels for the CPU come back.
PTX_ON_CPU_EXPORT void ptx_on_cpu_disable() { gelu_kernels::library.reset(); }
