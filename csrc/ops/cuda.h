// The CUDA kernels of the core operators, for a dispatch key to take.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "csrc/cuda/kernels.h"

namespace gelu_kernels {

void register_cuda_kernels(torch::Library& library);

// Where the caller wants the work done on x.
cuda::Queue queue_of(const at::Tensor& x);

}  // namespace gelu_kernels
