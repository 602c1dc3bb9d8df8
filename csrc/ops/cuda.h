// The CUDA kernels of the core operators, for a dispatch key to take.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "csrc/cuda/kernels.h"

namespace gelu_kernels {

void register_cuda_kernels(torch::Library& library);
// Among them those of the SOI map and of the gated linear unit.
void register_soi_cuda_kernels(torch::Library& library);
void register_glu_cuda_kernels(torch::Library& library);

// Where the caller wants the work done on x.
cuda::Queue queue_of(const at::Tensor& x);

// Throws if there is an error.
void check_launch(const char* op, cuda::Error error);

}  // namespace gelu_kernels
