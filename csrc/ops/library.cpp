// The operators: their schemas, the public ones in terms of the core ones, and the core ones as C++
// functions.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <numeric>
#include <vector>

#include "csrc/ops/find_op.h"
#include "csrc/ops/gate_ops.h"
#include "csrc/ops/jagged.h"

namespace gelu_kernels {

at::Tensor cast_under_autocast(const at::Tensor& t, const at::Tensor& x) {
  const auto device = x.device().type();
  const bool cast = t.scalar_type() != x.scalar_type() && t.is_floating_point() &&
                    at::autocast::is_autocast_available(device) &&
                    at::autocast::is_autocast_enabled(device);
  return cast ? t.to(x.scalar_type()) : t;
}

std::optional<at::Tensor> bias_for(const char* op, const std::optional<at::Tensor>& bias,
                                   const at::Tensor& x) {
  if (!bias) return std::nullopt;
  at::Tensor same_dtype = cast_under_autocast(*bias, x);
  check_bias(op, same_dtype, x);
  return same_dtype;
}

at::Tensor gate_forward(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                        std::string_view gate) {
  static const auto op = find_op<decltype(gate_forward)>("gelu_kernels::gate_forward");
  return op.call(x, bias, gate);
}

at::Tensor gate_backward(const at::Tensor& dy, const at::Tensor& x,
                         const std::optional<at::Tensor>& bias, std::string_view gate) {
  static const auto op = find_op<decltype(gate_backward)>("gelu_kernels::gate_backward");
  return op.call(dy, x, bias, gate);
}

std::tuple<at::Tensor, at::Tensor> gate_backward_bias(const at::Tensor& dy, const at::Tensor& x,
                                                      const at::Tensor& bias,
                                                      std::string_view gate) {
  static const auto op = find_op<decltype(gate_backward_bias)>("gelu_kernels::gate_backward_bias");
  return op.call(dy, x, bias, gate);
}

at::Tensor gate_double_backward(const at::Tensor& ddx, const at::Tensor& dy, const at::Tensor& x,
                                const std::optional<at::Tensor>& bias, std::string_view gate) {
  static const auto op =
      find_op<decltype(gate_double_backward)>("gelu_kernels::gate_double_backward");
  return op.call(ddx, dy, x, bias, gate);
}

namespace {

at::Tensor apply_gate(const char* op, const at::Tensor& x, const std::optional<at::Tensor>& bias,
                      std::string_view gate) {
  check_input(op, x);
  if (bias && x.layout() == at::kJagged) {
    return map_values(op, x,
                      [&](const at::Tensor& values) { return apply_gate(op, values, bias, gate); });
  }
  return gate_forward(x, bias_for(op, bias, x), gate);
}

}  // namespace

at::Tensor fused_gelu(const at::Tensor& x, std::string_view approximate) {
  const char* op = "fused_gelu";
  return apply_gate(op, x, std::nullopt, gate_for(op, approximate));
}

at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias,
                           std::string_view approximate) {
  const char* op = "fused_bias_gelu";
  return apply_gate(op, x, bias, gate_for(op, approximate));
}

at::Tensor fused_gate(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                      std::string_view gate) {
  const char* op = "fused_gate";
  gate_named(op, gate);
  return apply_gate(op, x, bias, gate);
}

at::Tensor sum_to_bias(const at::Tensor& dx) {
  if (dx.dim() == 1) return dx.clone();
  std::vector<int64_t> leading(static_cast<size_t>(dx.dim() - 1));
  std::iota(leading.begin(), leading.end(), 0);
  return dx.sum(leading);
}

TORCH_LIBRARY(gelu_kernels, m) {
  m.def("fused_gelu(Tensor x, *, str approximate=\"none\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("fused_bias_gelu(Tensor x, Tensor bias, *, str approximate=\"none\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("fused_gate(Tensor x, Tensor? bias=None, *, str gate) -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("gate_forward(Tensor x, Tensor? bias, str gate) -> Tensor y",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def("gate_backward(Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def(
      "gate_backward_bias(Tensor dy, Tensor x, Tensor bias, str gate) -> (Tensor dx, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "gate_double_backward(Tensor ddx, Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx",
      {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) {
  m.impl("fused_gelu", fused_gelu);
  m.impl("fused_bias_gelu", fused_bias_gelu);
  m.impl("fused_gate", fused_gate);
}

// Without it vmap would call a public operator for each element of a batch.
TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatchedDecomposition, m) {
  m.impl("fused_gelu", fused_gelu);
  m.impl("fused_bias_gelu", fused_bias_gelu);
  m.impl("fused_gate", fused_gate);
}

}  // namespace gelu_kernels
