// Derivatives of the gates, of any order and in every mode.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "csrc/ops/gate_ops.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {
namespace {

// Of gate_forward(x, bias); saves x, bias.
struct GateBackward final : GateNode<GateBackward> {
  static constexpr const char* kName = "GateBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    const Tensor& x = saved[0];
    if (saved.size() == 1) return {gate_backward(dy, x, std::nullopt, gate)};
    const Tensor& bias = saved[1];
    if (!wanted[1]) return {gate_backward(dy, x, bias, gate), Tensor()};
    auto [dx, dbias] = gate_backward_bias(dy, x, bias, gate);
    return {std::move(dx), std::move(dbias)};
  }
};

// Of gate_backward(dy, x, bias); saves dy, x, bias.
struct GateDoubleBackward final : GateNode<GateDoubleBackward> {
  static constexpr const char* kName = "GateDoubleBackward";

  static variable_list gradients(const Tensor& ddx, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    const Tensor &dy = saved[0], &x = saved[1];
    const bool has_bias = saved.size() == 3;
    const OptionalTensor bias = has_bias ? OptionalTensor(saved[2]) : std::nullopt;
    const bool wants_bias = has_bias && wanted[2];
    variable_list result(saved.size());
    if (wanted[0]) result[0] = gate_backward(ddx, x, bias, gate);
    if (wanted[1] || wants_bias) result[1] = gate_double_backward(ddx, dy, x, bias, gate);
    if (wants_bias) result[2] = sum_to_bias(result[1]);
    return result;
  }
};

Tensor gate_forward_autograd(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const auto node = record<GateBackward>(gate, bias, x);
  Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    y = gate_forward(x, bias, gate);
  }
  if (node) torch::autograd::set_history(y, node);
  if (const OptionalTensor tangent = sum_tangent(x, bias)) {
    y._set_fw_grad(gate_backward(*tangent, primal(x), primal(bias), gate), /*level=*/0,
                   /*is_inplace_op=*/false);
  }
  return y;
}

Tensor gate_backward_autograd(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                              std::string_view gate) {
  const auto node = record<GateDoubleBackward>(gate, bias, dy, x);
  Tensor dx;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    dx = gate_backward(dy, x, bias, gate);
  }
  if (node) torch::autograd::set_history(dx, node);
  OptionalTensor tangent;
  if (isFwGradDefined(dy)) {
    tangent = gate_backward(dy._fw_grad(0), primal(x), primal(bias), gate);
  }
  if (const OptionalTensor x_tangent = sum_tangent(x, bias)) {
    const Tensor term = gate_double_backward(*x_tangent, primal(dy), primal(x), primal(bias), gate);
    tangent = tangent ? *tangent + term : term;
  }
  if (tangent) dx._set_fw_grad(*tangent, /*level=*/0, /*is_inplace_op=*/false);
  return dx;
}

// Differentiated again only by double backward, where the two separate operations will do.
std::tuple<Tensor, Tensor> gate_backward_bias_autograd(const Tensor& dy, const Tensor& x,
                                                       const Tensor& bias, std::string_view gate) {
  if (is_differentiated(dy, x, bias)) {
    check_gate("gate_backward_bias", x, bias, gate, {{"dy", dy}});
    Tensor dx = gate_backward(dy, x, bias, gate);
    Tensor dbias = sum_to_bias(dx);
    return {std::move(dx), std::move(dbias)};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return gate_backward_bias(dy, x, bias, gate);
}

// g''(x) made of differentiable operations.
Tensor second_derivative(const Tensor& x, Gate gate) {
  switch (gate) {
#define GELU_KERNELS_CASE(name, Type, approximate) \
  case Gate::name:                                 \
    return Type::second_derivative_formula(x);
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_CASE)
#undef GELU_KERNELS_CASE
  }
  TORCH_INTERNAL_ASSERT(false);
}

// A third derivative needs the second to be differentiable. It is computed in at least float32, as
// the kernels compute it.
Tensor gate_double_backward_autograd(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                     const OptionalTensor& bias, std::string_view gate) {
  if (is_differentiated(ddx, dy, x, bias)) {
    const Gate id = check_gate("gate_double_backward", x, bias, gate, {{"ddx", ddx}, {"dy", dy}});
    const auto dtype = at::toOpMathType(x.scalar_type());
    const Tensor sum = bias ? x.to(dtype) + bias->to(dtype) : x.to(dtype);
    return (ddx.to(dtype) * dy.to(dtype) * second_derivative(sum, id)).to(x.scalar_type());
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return gate_double_backward(ddx, dy, x, bias, gate);
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Autograd, m) {
  m.impl("gate_forward", gate_forward_autograd);
  m.impl("gate_backward", gate_backward_autograd);
  m.impl("gate_backward_bias", gate_backward_bias_autograd);
  m.impl("gate_double_backward", gate_double_backward_autograd);
}

}  // namespace gelu_kernels
