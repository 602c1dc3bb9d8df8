// Derivatives of the gated linear unit, of any order and in every mode. A gradient that is itself
// differentiated, and a dual number's halves, take several operators in place of one.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include "csrc/ops/glu/glu.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {
namespace {

// The node of glu_forward(x, up), which saves x and up.
struct GluBackwardNode final : BackwardNode<GluBackwardNode> {
  static constexpr const char* kName = "GluBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    const Tensor &x = saved[0], &up = saved[1];
    if (!wanted[0]) return {Tensor(), glu_forward(x, dy, gate)};
    auto [dx, dup] = glu_backward(dy, x, up, gate);
    return {std::move(dx), wanted[1] ? std::move(dup) : Tensor()};
  }
};

// The node of glu_halves_forward(x), which saves x.
struct GluHalvesBackwardNode final : BackwardNode<GluHalvesBackwardNode> {
  static constexpr const char* kName = "GluHalvesBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>&, const std::string& gate) {
    return {glu_halves_backward(dy, saved[0], gate)};
  }
};

}  // namespace

Tensor GluForward::differentiate(const Tensor& x, const Tensor& up, std::string_view gate) {
  const auto node = record<GluBackwardNode>(gate, std::nullopt, x, up);
  Tensor y = below_autograd(x, up, gate);
  OptionalTensor x_part = tangent_of(x), up_part = tangent_of(up);
  if (x_part) x_part = std::get<0>(glu_backward(*x_part, primal(x), primal(up), gate));
  if (up_part) up_part = glu_forward(primal(x), *up_part, gate);
  set_derivatives(y, node, sum_of(x_part, up_part));
  return y;
}

// Jagged tensors know no operator of three tensors. In at least float32, in which dy·up is not
// rounded and does not overflow: as the kernels do it.
std::tuple<Tensor, Tensor> GluBackward::differentiate(const Tensor& dy, const Tensor& x,
                                                      const Tensor& up, std::string_view gate) {
  if (!is_differentiated(dy, x, up) && x.layout() != at::kJagged) {
    return below_autograd(dy, x, up, gate);
  }
  check_glu(name(), x, up, gate, dy);
  const auto dtype = at::toOpMathType(x.scalar_type());
  const Tensor dx = gate_backward(dy.to(dtype) * up.to(dtype), x.to(dtype), std::nullopt, gate);
  return {dx.to(x.scalar_type()), glu_forward(x, dy, gate)};
}

Tensor GluHalvesForward::differentiate(const Tensor& x, std::string_view gate) {
  if (isFwGradDefined(x)) {
    check_glu_halves(name(), x, gate);
    const Halves in(x);
    return glu_forward(in.x, in.up, gate).contiguous();
  }
  const auto node = record<GluHalvesBackwardNode>(gate, std::nullopt, x);
  Tensor y = below_autograd(x, gate);
  set_derivatives(y, node, std::nullopt);
  return y;
}

Tensor GluHalvesBackward::differentiate(const Tensor& dy, const Tensor& x, std::string_view gate) {
  if (!is_differentiated(dy, x)) return below_autograd(dy, x, gate);
  check_glu_halves(name(), x, gate, dy);
  const Halves in(x);
  const auto [dx, dup] = glu_backward(dy, in.x, in.up, gate);
  return at::cat({dx, dup}, -1);
}

}  // namespace gelu_kernels
