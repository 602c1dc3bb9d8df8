// The gradient of a bias, composed of operators that can be differentiated and batched.
#pragma once

#include <ATen/ops/sum.h>

#include <numeric>
#include <tuple>
#include <vector>

namespace gelu_kernels {

// The sum over all but the last dimension.
inline at::Tensor sum_to_bias(const at::Tensor& dx) {
  if (dx.dim() == 1) return dx.clone();
  std::vector<int64_t> leading(static_cast<size_t>(dx.dim() - 1));
  std::iota(leading.begin(), leading.end(), 0);
  return dx.sum(leading);
}

inline std::tuple<at::Tensor, at::Tensor> with_bias_sum(at::Tensor dx) {
  at::Tensor dbias = sum_to_bias(dx);
  return {std::move(dx), std::move(dbias)};
}

}  // namespace gelu_kernels
