// Shapes and strides of the results, without data: what torch.compile and FakeTensor see. Results
// have the strides of x where x is dense in some order of its dimensions.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "csrc/ops/gate_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor gate_forward_meta(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  check_gate("gate_forward", x, bias, gate);
  return at::empty_like(x);
}

Tensor gate_backward_meta(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                          std::string_view gate) {
  check_gate("gate_backward", x, bias, gate, {{"dy", dy}});
  return at::empty_like(x);
}

std::tuple<Tensor, Tensor> gate_backward_bias_meta(const Tensor& dy, const Tensor& x,
                                                   const Tensor& bias, std::string_view gate) {
  check_gate("gate_backward_bias", x, bias, gate, {{"dy", dy}});
  return {at::empty_like(x), at::empty_like(bias)};
}

Tensor gate_double_backward_meta(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, std::string_view gate) {
  check_gate("gate_double_backward", x, bias, gate, {{"ddx", ddx}, {"dy", dy}});
  return at::empty_like(x);
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Meta, m) {
  m.impl("gate_forward", gate_forward_meta);
  m.impl("gate_backward", gate_backward_meta);
  m.impl("gate_backward_bias", gate_backward_bias_meta);
  m.impl("gate_double_backward", gate_double_backward_meta);
}

}  // namespace gelu_kernels
