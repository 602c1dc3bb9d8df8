// Derivatives of the gates, of any order and in every mode.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/gate/gradients.h"

namespace gelu_kernels {
namespace {

struct GateBackwardNode final : GateGradients<GateBackwardNode> {
  static constexpr const char* kName = "GateBackward";
};

// The node of gate_backward(dy, x, bias), which saves dy, x and bias.
struct GateDoubleBackwardNode final : BackwardNode<GateDoubleBackwardNode> {
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

// g''(x) made of differentiable operations.
Tensor second_derivative(const Tensor& x, Gate gate) {
  switch (gate) {
#define GELU_KERNELS_CASE(name, Type, ...) \
  case Gate::name:                         \
    return Type::second_derivative_formula(x);
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_CASE)
#undef GELU_KERNELS_CASE
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace

Tensor GateForward::differentiate(const Tensor& x, const OptionalTensor& bias,
                                  std::string_view gate) {
  const auto node = record<GateBackwardNode>(gate, bias, x);
  Tensor y = below_autograd(x, bias, gate);
  OptionalTensor tangent = sum_tangent(x, bias);
  if (tangent) tangent = gate_backward(*tangent, primal(x), primal(bias), gate);
  set_derivatives(y, node, tangent);
  return y;
}

Tensor GateBackward::differentiate(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                                   std::string_view gate) {
  const auto node = record<GateDoubleBackwardNode>(gate, bias, dy, x);
  Tensor dx = below_autograd(dy, x, bias, gate);
  OptionalTensor dy_part = tangent_of(dy), x_part = sum_tangent(x, bias);
  if (dy_part) dy_part = gate_backward(*dy_part, primal(x), primal(bias), gate);
  if (x_part) x_part = gate_double_backward(*x_part, primal(dy), primal(x), primal(bias), gate);
  set_derivatives(dx, node, sum_of(dy_part, x_part));
  return dx;
}

// Only double backward differentiates this again; the two separate operations serve there.
std::tuple<Tensor, Tensor> GateBackwardBias::differentiate(const Tensor& dy, const Tensor& x,
                                                           const Tensor& bias,
                                                           std::string_view gate) {
  if (!is_differentiated(dy, x, bias)) return below_autograd(dy, x, bias, gate);
  check_gate(name(), x, bias, gate, {{"dy", dy}});
  return batch(dy, x, bias, gate);
}

std::tuple<Tensor, Tensor> GateBackwardBias::batch(const Tensor& dy, const Tensor& x,
                                                   const Tensor& bias, std::string_view gate) {
  return with_bias_sum(gate_backward(dy, x, bias, gate));
}

// A third derivative needs the second to be differentiable. It is computed in at least float32, as
// the kernels compute it.
Tensor GateDoubleBackward::differentiate(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                         const OptionalTensor& bias, std::string_view gate) {
  if (!is_differentiated(ddx, dy, x, bias)) return below_autograd(ddx, dy, x, bias, gate);
  const Gate id = check_gate(name(), x, bias, gate, {{"ddx", ddx}, {"dy", dy}});
  const auto dtype = at::toOpMathType(x.scalar_type());
  const Tensor sum = bias ? x.to(dtype) + bias->to(dtype) : x.to(dtype);
  return (ddx.to(dtype) * dy.to(dtype) * second_derivative(sum, id)).to(x.scalar_type());
}

}  // namespace gelu_kernels
