#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <string_view>

#include "csrc/ops/device/cuda.h"

namespace gelu_kernels {

// The caller's stream without a header of CUDA, so that this compiles against any torch.
cuda::Queue queue_of(const at::Tensor& x) {
  const auto stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(x.device());
  return {x.device().index(), stream.native_handle()};
}

Seed Cuda::seed_of(const at::Tensor& seed) {
  const int64_t* const data = seed.const_data_ptr<int64_t>();
  return seed.is_cpu() ? Seed{nullptr, *data} : Seed{data, 0};
}

// gelu_kernels/backend.py registers Triton's kernels where these leave room for them.
TORCH_LIBRARY_IMPL(gelu_kernels, CUDA, m) {
  const char* backend = std::getenv("GELU_KERNELS_BACKEND");
  if (!backend || std::string_view(backend) != "triton") register_cuda_kernels(m);
}

}  // namespace gelu_kernels
