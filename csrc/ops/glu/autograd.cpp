// Derivatives of the gated linear unit, of any order and in every mode. A gradient that is itself
// differentiated, and a dual number's parts, take several operators in place of one.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include "csrc/ops/glu/gradients.h"

namespace gelu_kernels {
namespace {

struct GluBackwardNode final : GluGradients<GluBackwardNode> {
  static constexpr const char* kName = "GluBackward";
};

struct GluHalvesBackwardNode final : GluHalvesGradients<GluHalvesBackwardNode> {
  static constexpr const char* kName = "GluHalvesBackward";
};

// The gradients by differentiable operators, in at least float32, in which the products are not
// rounded and do not overflow: as the kernels do it.
struct Gradients {
  Tensor dx, dup, weight_terms;
};
Gradients compose(const Tensor& dy, const Tensor& x, const Tensor& up, const GluOptions& options) {
  const auto dtype = at::toOpMathType(x.scalar_type());
  Tensor least = x.to(dtype), factor = up.to(dtype);
  const auto unless = [&](const Tensor& is_cut, double otherwise, const Tensor& t) {
    return options.limit ? at::where(is_cut, otherwise, t) : t;
  };
  Tensor x_is_cut, up_is_cut;
  if (options.limit) {
    const double limit = *options.limit;
    x_is_cut = least > limit;
    up_is_cut = factor.abs() > limit;
    least = at::where(x_is_cut, limit, least);
    factor = at::where(factor > limit, limit, at::where(factor < -limit, -limit, factor));
  }
  factor = factor + options.up_offset;
  const Tensor given = dy.to(dtype);
  const Tensor scaled = options.weight ? given * options.weight->to(dtype).unsqueeze(-1) : given;
  const Tensor value = gate_forward(least, std::nullopt, options.gate);
  const Tensor dx = gate_backward(scaled * factor, least, std::nullopt, options.gate);
  return {unless(x_is_cut, 0, dx).to(x.scalar_type()),
          unless(up_is_cut, 0, scaled * value).to(x.scalar_type()), given * factor * value};
}

// The sum over each row.
Tensor sum_to_weight(const Gradients& gradients, const Tensor& weight) {
  return gradients.weight_terms.sum(-1).to(weight.scalar_type());
}

}  // namespace

Tensor GluForward::differentiate(const Tensor& x, const Tensor& up, const OptionalTensor& weight,
                                 std::string_view gate, std::optional<double> limit,
                                 double up_offset) {
  const auto node = record<GluBackwardNode>(gate, weight, x, up);
  if (node) node->numbers = {limit, up_offset};
  Tensor y = below_autograd(x, up, weight, gate, limit, up_offset);
  OptionalTensor x_part = tangent_of(x), up_part = tangent_of(up), weight_part;
  const auto gradients = [&](const Tensor& tangent) {
    return glu_backward(tangent, primal(x), primal(up), primal(weight), gate, limit, up_offset);
  };
  if (x_part) x_part = std::get<0>(gradients(*x_part));
  if (up_part) up_part = std::get<1>(gradients(*up_part));
  if (weight && isFwGradDefined(*weight)) {
    weight_part = glu_forward(primal(x), primal(up), weight->_fw_grad(0), gate, limit, up_offset);
  }
  set_derivatives(y, node, sum_of(sum_of(x_part, up_part), weight_part));
  return y;
}

// Jagged tensors have no operator of three tensors, so theirs have no options.
std::tuple<Tensor, Tensor> GluBackward::differentiate(
    const Tensor& dy, const Tensor& x, const Tensor& up, const OptionalTensor& weight,
    std::string_view gate, std::optional<double> limit, double up_offset) {
  if (!is_differentiated(dy, x, up, weight) && x.layout() != at::kJagged) {
    return below_autograd(dy, x, up, weight, gate, limit, up_offset);
  }
  const GluOptions options{weight, gate, limit, up_offset};
  check_glu(name(), x, up, options, dy);
  if (!options.is_plain()) {
    auto [dx, dup, terms] = compose(dy, x, up, options);
    return {std::move(dx), std::move(dup)};
  }
  const auto dtype = at::toOpMathType(x.scalar_type());
  const Tensor dx = gate_backward(dy.to(dtype) * up.to(dtype), x.to(dtype), std::nullopt, gate);
  return {dx.to(x.scalar_type()), glu_forward(x, dy, weight, gate, limit, up_offset)};
}

std::tuple<Tensor, Tensor, Tensor> GluBackwardWeight::differentiate(
    const Tensor& dy, const Tensor& x, const Tensor& up, const Tensor& weight,
    std::string_view gate, std::optional<double> limit, double up_offset) {
  if (!is_differentiated(dy, x, up, weight)) {
    return below_autograd(dy, x, up, weight, gate, limit, up_offset);
  }
  const OptionalTensor given = weight;
  const GluOptions options{given, gate, limit, up_offset};
  check_glu(name(), x, up, options, dy);
  const Gradients gradients = compose(dy, x, up, options);
  return {gradients.dx, gradients.dup, sum_to_weight(gradients, weight)};
}

Tensor GluHalvesForward::differentiate(const Tensor& x, const OptionalTensor& weight,
                                       std::string_view gate, std::optional<double> limit,
                                       double up_offset) {
  if (isFwGradDefined(x) || isFwGradDefined(weight)) {
    check_glu_halves(name(), x, {weight, gate, limit, up_offset});
    const Halves in(x);
    return glu_forward(in.x, in.up, weight, gate, limit, up_offset).contiguous();
  }
  const auto node = record<GluHalvesBackwardNode>(gate, weight, x);
  if (node) node->numbers = {limit, up_offset};
  Tensor y = below_autograd(x, weight, gate, limit, up_offset);
  set_derivatives(y, node, std::nullopt);
  return y;
}

Tensor GluHalvesBackward::differentiate(const Tensor& dy, const Tensor& x,
                                        const OptionalTensor& weight, std::string_view gate,
                                        std::optional<double> limit, double up_offset) {
  if (!is_differentiated(dy, x, weight)) {
    return below_autograd(dy, x, weight, gate, limit, up_offset);
  }
  check_glu_halves(name(), x, {weight, gate, limit, up_offset}, dy);
  const Halves in(x);
  const auto [dx, dup] = glu_backward(dy, in.x, in.up, weight, gate, limit, up_offset);
  return at::cat({dx, dup}, -1);
}

std::tuple<Tensor, Tensor> GluHalvesBackwardWeight::differentiate(const Tensor& dy, const Tensor& x,
                                                                  const Tensor& weight,
                                                                  std::string_view gate,
                                                                  std::optional<double> limit,
                                                                  double up_offset) {
  if (!is_differentiated(dy, x, weight)) {
    return below_autograd(dy, x, weight, gate, limit, up_offset);
  }
  check_glu_halves(name(), x, {weight, gate, limit, up_offset}, dy);
  const Halves in(x);
  auto [dx, dup, dweight] = glu_backward_weight(dy, in.x, in.up, weight, gate, limit, up_offset);
  return {at::cat({dx, dup}, -1), std::move(dweight)};
}

}  // namespace gelu_kernels
