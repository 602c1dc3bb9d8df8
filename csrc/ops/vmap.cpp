// torch.vmap without its slow fallback: the operators run on the whole batch at once.
#include "csrc/ops/vmap.h"

#include <torch/library.h>

#include "csrc/ops/gate_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor gate_forward_vmap(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  return pointwise({x}, bias,
                   [&](const auto& t, const auto& b) { return gate_forward(t[0], b, gate); });
}

Tensor gate_backward_vmap(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                          std::string_view gate) {
  return pointwise({dy, x}, bias, [&](const auto& t, const auto& b) {
    return gate_backward(t[0], t[1], b, gate);
  });
}

Tensor gate_double_backward_vmap(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, std::string_view gate) {
  return pointwise({ddx, dy, x}, bias, [&](const auto& t, const auto& b) {
    return gate_double_backward(t[0], t[1], t[2], b, gate);
  });
}

std::tuple<Tensor, Tensor> gate_backward_bias_vmap(const Tensor& dy, const Tensor& x,
                                                   const Tensor& bias, std::string_view gate) {
  Tensor dx = gate_backward(dy, x, bias, gate);
  Tensor dbias = sum_to_bias(dx);
  return {std::move(dx), std::move(dbias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatched, m) {
  m.impl("gate_forward", gate_forward_vmap);
  m.impl("gate_backward", gate_backward_vmap);
  m.impl("gate_double_backward", gate_double_backward_vmap);
  m.impl("gate_backward_bias", gate_backward_bias_vmap);
}

}  // namespace gelu_kernels
