// The core operators of the SOI map as C++ functions that go through the dispatcher, and the checks
// that their kernels share.
#pragma once

#include <ATen/core/Generator.h>

#include "csrc/ops/gate_ops.h"
#include "csrc/random/philox.h"

namespace gelu_kernels {

// y = m (x + bias) with m ~ Bernoulli(F(x + bias)), and the mask of m: bit i % 8 of byte i / 8 is
// that of element i in row-major order. seed is an int64 scalar on the device of x; which random
// bits it gives an element, see GlobalIndex.
std::tuple<at::Tensor, at::Tensor> soi_forward(const at::Tensor& x,
                                               const std::optional<at::Tensor>& bias,
                                               const at::Tensor& seed, std::string_view gate,
                                               int64_t offset, int64_t row_length,
                                               int64_t row_stride);
// dx = dy where the mask is 1, else 0.
at::Tensor soi_backward(const at::Tensor& dy, const at::Tensor& mask);
// The same, and dbias, its sum over all but the last dimension.
std::tuple<at::Tensor, at::Tensor> soi_backward_bias(const at::Tensor& dy, const at::Tensor& mask);

// The public operators.
C10_EXPORT at::Tensor soi_map(const at::Tensor& x, std::string_view gate,
                              const std::optional<at::Generator>& generator);
C10_EXPORT at::Tensor fused_bias_soi_map(const at::Tensor& x, const at::Tensor& bias,
                                         std::string_view gate,
                                         const std::optional<at::Generator>& generator);

// For tests: of the 2^32 random words, how many have -|x| in the tail of F, in int64, for a float32
// tensor on the CPU. They are the least.
C10_EXPORT at::Tensor soi_thresholds(const at::Tensor& x, std::string_view gate);

// The length of a mask.
c10::SymInt mask_bytes(const at::Tensor& x);

C10_EXPORT Gate check_soi_forward(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                                  const at::Tensor& seed, std::string_view gate,
                                  const GlobalIndex& index);
C10_EXPORT void check_soi_backward(const char* op, const at::Tensor& dy, const at::Tensor& mask,
                                   bool has_bias);

}  // namespace gelu_kernels
