// The CUDA kernels of the core operators, for a dispatch key to take.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "csrc/cuda/kernels.h"

namespace gelu_kernels {

void register_cuda_kernels(torch::Library& library);
// Among them those of the SOI map and of the gated linear unit.
void register_soi_cuda_kernels(torch::Library& library);
void register_glu_cuda_kernels(torch::Library& library);

// Where the caller wants the work done on x.
cuda::Queue queue_of(const at::Tensor& x);

[[noreturn]] void fail(const char* op, int device, const cuda::Error& error);

// Starts what works on x, on x's device and where the caller wants it done there.
template <class Operands>
void start(const char* op, const at::Tensor& x, cuda::Error (*launch)(cuda::Queue, const Operands&),
           const Operands& operands) {
  const c10::DeviceGuard guard(x.device());
  const cuda::Queue queue = queue_of(x);
  if (const auto error = launch(queue, operands)) fail(op, queue.device, error);
}

}  // namespace gelu_kernels
