// Derivatives of a gate, or a gated linear unit, with dropout, for a given mask. No derivative goes
// through the mask. A gradient that is itself differentiated takes several operators.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/dropout/dropout.h"
#include "csrc/ops/node.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {
namespace {

// The nodes save their inputs and then the mask.
struct GateDropoutBackwardNode final : BackwardNode<GateDropoutBackwardNode, double> {
  static constexpr const char* kName = "GateDropoutBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 double p) {
    const Tensor &x = saved[0], &mask = saved.back();
    if (wanted.size() == 1) return {gate_dropout_backward(dy, x, std::nullopt, mask, gate, p)};
    const Tensor& bias = saved[1];
    if (!wanted[1]) return {gate_dropout_backward(dy, x, bias, mask, gate, p), Tensor()};
    auto [dx, dbias] = gate_dropout_backward_bias(dy, x, bias, mask, gate, p);
    return {std::move(dx), std::move(dbias)};
  }
};

struct GluDropoutBackwardNode final : BackwardNode<GluDropoutBackwardNode, double> {
  static constexpr const char* kName = "GluDropoutBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate,
                                 double p) {
    auto [dx, dup] = glu_dropout_backward(dy, saved[0], saved[1], saved[2], gate, p);
    return {wanted[0] ? std::move(dx) : Tensor(), wanted[1] ? std::move(dup) : Tensor()};
  }
};

struct GluDropoutHalvesBackwardNode final : BackwardNode<GluDropoutHalvesBackwardNode, double> {
  static constexpr const char* kName = "GluDropoutHalvesBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>&, const std::string& gate, double p) {
    return {glu_dropout_halves_backward(dy, saved[0], saved[1], gate, p)};
  }
};

template <class Node>
void save_mask(const Node& node, const Tensor& mask, double p) {
  if (!node) return;
  node->saved.emplace_back(mask, /*is_output=*/false);
  node->numbers = {p};
}

// The kernels' formulas in differentiable operators, in at least float32, without rounding to
// storage in between. The selection comes last: a factor may be infinite or NaN where the mask is
// 0.
Tensor factored(const Tensor& dy, double p) {
  return dy.to(at::toOpMathType(dy.scalar_type())) * factor_of(p);
}
Tensor selected(const Tensor& gradient, const Tensor& mask, const Tensor& x) {
  return soi_backward(gradient, mask).to(x.scalar_type());
}

}  // namespace

std::tuple<Tensor, Tensor> GateDropoutForward::differentiate(
    const Tensor& x, const OptionalTensor& bias, const Tensor& seed, std::string_view gate,
    double p, int64_t offset, int64_t row_length, int64_t row_stride) {
  const auto node = record<GateDropoutBackwardNode>(gate, bias, x);
  auto [y, mask] = below_autograd(x, bias, seed, gate, p, offset, row_length, row_stride);
  save_mask(node, mask, p);
  OptionalTensor tangent = sum_tangent(x, bias);
  if (tangent) tangent = gate_dropout_backward(*tangent, primal(x), primal(bias), mask, gate, p);
  set_derivatives(y, node, tangent);
  return {std::move(y), std::move(mask)};
}

Tensor GateDropoutBackward::differentiate(const Tensor& dy, const Tensor& x,
                                          const OptionalTensor& bias, const Tensor& mask,
                                          std::string_view gate, double p) {
  if (!is_differentiated(dy, x, bias)) return below_autograd(dy, x, bias, mask, gate, p);
  return batch(dy, x, bias, mask, gate, p);
}

Tensor GateDropoutBackward::batch(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                                  const Tensor& mask, std::string_view gate, double p) {
  check_gate_dropout_backward(name(), dy, x, bias, mask, gate, p);
  const Tensor given = factored(dy, p);
  const auto wide = [&given](const Tensor& t) { return t.to(given.scalar_type()); };
  const Tensor sum = bias ? wide(x) + wide(*bias) : wide(x);
  return selected(gate_backward(given, sum, std::nullopt, gate), mask, x);
}

std::tuple<Tensor, Tensor> GateDropoutBackwardBias::differentiate(const Tensor& dy, const Tensor& x,
                                                                  const Tensor& bias,
                                                                  const Tensor& mask,
                                                                  std::string_view gate, double p) {
  if (!is_differentiated(dy, x, bias)) return below_autograd(dy, x, bias, mask, gate, p);
  return batch(dy, x, bias, mask, gate, p);
}

std::tuple<Tensor, Tensor> GateDropoutBackwardBias::batch(const Tensor& dy, const Tensor& x,
                                                          const Tensor& bias, const Tensor& mask,
                                                          std::string_view gate, double p) {
  check_gate_dropout_backward(name(), dy, x, bias, mask, gate, p);
  return with_bias_sum(gate_dropout_backward(dy, x, bias, mask, gate, p));
}

std::tuple<Tensor, Tensor> GluDropoutForward::differentiate(const Tensor& x, const Tensor& up,
                                                            const Tensor& seed,
                                                            std::string_view gate, double p,
                                                            int64_t offset, int64_t row_length,
                                                            int64_t row_stride) {
  const auto node = record<GluDropoutBackwardNode>(gate, std::nullopt, x, up);
  auto [y, mask] = below_autograd(x, up, seed, gate, p, offset, row_length, row_stride);
  save_mask(node, mask, p);
  OptionalTensor x_part = tangent_of(x), up_part = tangent_of(up);
  const auto gradients = [&, &mask = mask](const Tensor& tangent) {
    return glu_dropout_backward(tangent, primal(x), primal(up), mask, gate, p);
  };
  if (x_part) x_part = std::get<0>(gradients(*x_part));
  if (up_part) up_part = std::get<1>(gradients(*up_part));
  set_derivatives(y, node, sum_of(x_part, up_part));
  return {std::move(y), std::move(mask)};
}

std::tuple<Tensor, Tensor> GluDropoutBackward::differentiate(const Tensor& dy, const Tensor& x,
                                                             const Tensor& up, const Tensor& mask,
                                                             std::string_view gate, double p) {
  if (!is_differentiated(dy, x, up)) return below_autograd(dy, x, up, mask, gate, p);
  return batch(dy, x, up, mask, gate, p);
}

std::tuple<Tensor, Tensor> GluDropoutBackward::batch(const Tensor& dy, const Tensor& x,
                                                     const Tensor& up, const Tensor& mask,
                                                     std::string_view gate, double p) {
  check_glu_dropout_backward(name(), dy, x, up, mask, gate, p);
  const Tensor given = factored(dy, p), wide_x = x.to(given.scalar_type());
  const Tensor dx = gate_backward(given * up.to(given.scalar_type()), wide_x, std::nullopt, gate);
  const Tensor dup = given * gate_forward(wide_x, std::nullopt, gate);
  return {selected(dx, mask, x), selected(dup, mask, x)};
}

std::tuple<Tensor, Tensor> GluDropoutHalvesForward::differentiate(
    const Tensor& x, const Tensor& seed, std::string_view gate, double p, int64_t offset,
    int64_t row_length, int64_t row_stride) {
  if (isFwGradDefined(x)) {
    check_glu_halves(name(), x, {std::nullopt, gate, std::nullopt, 0});
    const Halves in(x);
    auto [y, mask] =
        glu_dropout_forward(in.x, in.up, seed, gate, p, offset, row_length, row_stride);
    return {y.contiguous(), std::move(mask)};
  }
  const auto node = record<GluDropoutHalvesBackwardNode>(gate, std::nullopt, x);
  auto [y, mask] = below_autograd(x, seed, gate, p, offset, row_length, row_stride);
  save_mask(node, mask, p);
  set_derivatives(y, node, std::nullopt);
  return {std::move(y), std::move(mask)};
}

Tensor GluDropoutHalvesBackward::differentiate(const Tensor& dy, const Tensor& x,
                                               const Tensor& mask, std::string_view gate,
                                               double p) {
  if (!is_differentiated(dy, x)) return below_autograd(dy, x, mask, gate, p);
  return batch(dy, x, mask, gate, p);
}

Tensor GluDropoutHalvesBackward::batch(const Tensor& dy, const Tensor& x, const Tensor& mask,
                                       std::string_view gate, double p) {
  check_glu_dropout_halves_backward(name(), dy, x, mask, gate, p);
  const Halves in(x);
  const auto [dx, dup] = glu_dropout_backward(dy, in.x, in.up, mask, gate, p);
  return at::cat({dx, dup}, -1);
}

}  // namespace gelu_kernels
