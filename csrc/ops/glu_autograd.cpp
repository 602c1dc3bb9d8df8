// Derivatives of the gated linear unit, of any order and in every mode. What else is one pass is
// made of several operators where it is a gradient to be differentiated itself, and where halves
// have tangents.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "csrc/ops/glu_ops.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {
namespace {

// Of glu_forward(x, up); saves x, up.
struct GluBackward final : GateNode<GluBackward> {
  static constexpr const char* kName = "GluBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    const Tensor &x = saved[0], &up = saved[1];
    if (!wanted[0]) return {Tensor(), glu_forward(x, dy, gate)};
    auto [dx, dup] = glu_backward(dy, x, up, gate);
    return {std::move(dx), wanted[1] ? std::move(dup) : Tensor()};
  }
};

// Of glu_halves_forward(x); saves x.
struct GluHalvesBackward final : GateNode<GluHalvesBackward> {
  static constexpr const char* kName = "GluHalvesBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>&, const std::string& gate) {
    return {glu_halves_backward(dy, saved[0], gate)};
  }
};

Tensor glu_forward_autograd(const Tensor& x, const Tensor& up, std::string_view gate) {
  const auto node = record<GluBackward>(gate, std::nullopt, x, up);
  Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    y = glu_forward(x, up, gate);
  }
  if (node) torch::autograd::set_history(y, node);
  OptionalTensor tangent;
  if (isFwGradDefined(x)) {
    tangent = std::get<0>(glu_backward(x._fw_grad(0), primal(x), primal(up), gate));
  }
  if (isFwGradDefined(up)) {
    const Tensor term = glu_forward(primal(x), up._fw_grad(0), gate);
    tangent = tangent ? *tangent + term : term;
  }
  if (tangent) y._set_fw_grad(*tangent, /*level=*/0, /*is_inplace_op=*/false);
  return y;
}

// Jagged tensors know no operator of three tensors. In at least float32, in which dy·up is not
// rounded and does not overflow: as the kernels do it.
std::tuple<Tensor, Tensor> glu_backward_autograd(const Tensor& dy, const Tensor& x,
                                                 const Tensor& up, std::string_view gate) {
  if (is_differentiated(dy, x, up) || x.layout() == at::kJagged) {
    check_glu("glu_backward", x, up, gate, dy);
    const auto dtype = at::toOpMathType(x.scalar_type());
    const Tensor dx = gate_backward(dy.to(dtype) * up.to(dtype), x.to(dtype), std::nullopt, gate);
    return {dx.to(x.scalar_type()), glu_forward(x, dy, gate)};
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return glu_backward(dy, x, up, gate);
}

Tensor glu_halves_forward_autograd(const Tensor& x, std::string_view gate) {
  if (isFwGradDefined(x)) {
    const Halves halves = check_glu_halves("glu_halves_forward", x, gate).halves;
    return glu_forward(halves.x, halves.up, gate).contiguous();
  }
  const auto node = record<GluHalvesBackward>(gate, std::nullopt, x);
  Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    y = glu_halves_forward(x, gate);
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

Tensor glu_halves_backward_autograd(const Tensor& dy, const Tensor& x, std::string_view gate) {
  if (is_differentiated(dy, x)) {
    const Halves halves = check_glu_halves("glu_halves_backward", x, gate, dy).halves;
    const auto [dx, dup] = glu_backward(dy, halves.x, halves.up, gate);
    return at::cat({dx, dup}, -1);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return glu_halves_backward(dy, x, gate);
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Autograd, m) {
  m.impl("glu_forward", glu_forward_autograd);
  m.impl("glu_backward", glu_backward_autograd);
  m.impl("glu_halves_forward", glu_halves_forward_autograd);
  m.impl("glu_halves_backward", glu_halves_backward_autograd);
}

}  // namespace gelu_kernels
