// Derivatives of a gate with a location and a scale, and its batches. A gradient that is itself
// differentiated, a dual number's part and a batch are compositions of torch's operators, which can
// be differentiated further: in at least float32, as the kernels compute.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/cdf/cdf.h"
#include "csrc/ops/node.h"

namespace gelu_kernels {
namespace {

// The node of cdf_gate_forward, which saves its tensors.
struct CdfGateBackwardNode final : BackwardNode<CdfGateBackwardNode> {
  static constexpr const char* kName = "CdfGateBackward";

  static variable_list gradients(const Tensor& dy, const variable_list& saved,
                                 const std::vector<bool>& wanted, const std::string& gate) {
    auto [dx, dloc, dscale] = cdf_gate_backward(dy, saved[0], saved[1], saved[2], gate);
    variable_list all{std::move(dx), std::move(dloc), std::move(dscale)};
    for (size_t i = 0; i < all.size(); ++i) {
      if (!wanted[i]) all[i] = Tensor();
    }
    return all;
  }
};

Tensor distribution(const Tensor& z, Gate gate) {
  switch (gate) {
#define GELU_KERNELS_CASE(name, Type, ...) \
  case Gate::name:                         \
    return Type::distribution_formula(z);
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_CASE)
#undef GELU_KERNELS_CASE
  }
  TORCH_INTERNAL_ASSERT(false);
}

Tensor density(const Tensor& z, Gate gate) {
  switch (gate) {
#define GELU_KERNELS_CASE(name, Type, ...) \
  case Gate::name:                         \
    return Type::density_formula(z);
    GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_CASE)
#undef GELU_KERNELS_CASE
  }
  TORCH_INTERNAL_ASSERT(false);
}

// F(z), x f(z)/scale and z, made of differentiable operations. Where the scale is 0 or x infinite,
// F is a step, and a derivative of 0 * infinity is kept out by numbers in the place of these.
struct Composition {
  Composition(const Tensor& given_x, const Tensor& given_loc, const Tensor& given_scale,
              std::string_view gate_name) {
    const Gate gate = gate_named("cdf_gate", gate_name);
    const auto dtype = at::toOpMathType(given_x.scalar_type());
    const Tensor x = given_x.to(dtype), loc = given_loc.to(dtype), scale = given_scale.to(dtype);
    const Tensor is_step = (scale == 0).logical_or(x.isinf());
    const Tensor finite_x = at::where(x.isinf(), at::zeros({}, x.options()), x);
    const Tensor positive = at::where(scale == 0, at::ones({}, scale.options()), scale);
    z = (finite_x - loc) / positive;
    const Tensor step = at::heaviside((x - loc).detach(), at::full({}, 0.5, x.options()));
    value = at::where(is_step, step, distribution(z, gate));
    slope = at::where(is_step, at::zeros({}, x.options()), finite_x * density(z, gate) / positive);
  }
  Tensor value, slope, z;
};

Tensor sum_like(const Tensor& terms, const Tensor& parameter) {
  const Tensor sum = parameter.dim() == 0 ? terms.sum() : sum_to_bias(terms);
  return sum.to(parameter.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> composed_gradients(const Tensor& dy, const Tensor& x,
                                                      const Tensor& loc, const Tensor& scale,
                                                      std::string_view gate) {
  const Composition c(x, loc, scale, gate);
  const Tensor wide_dy = dy.to(c.value.scalar_type()), terms = -(wide_dy * c.slope);
  return {(wide_dy * (c.value + c.slope)).to(x.scalar_type()), sum_like(terms, loc),
          sum_like(terms * c.z, scale)};
}

}  // namespace

Tensor CdfGateForward::differentiate(const Tensor& x, const Tensor& loc, const Tensor& scale,
                                     std::string_view gate) {
  const auto node = record<CdfGateBackwardNode>(gate, std::nullopt, x, loc, scale);
  Tensor y = below_autograd(x, loc, scale, gate);
  OptionalTensor tangent;
  if (isFwGradDefined(x) || isFwGradDefined(loc) || isFwGradDefined(scale)) {
    const Composition c(primal(x), primal(loc), primal(scale), gate);
    const OptionalTensor dx = tangent_of(x), dloc = tangent_of(loc), dscale = tangent_of(scale);
    OptionalTensor sum;
    if (dx) sum = *dx * (c.value + c.slope);
    if (dloc) sum = sum_of(sum, -(*dloc * c.slope));
    if (dscale) sum = sum_of(sum, -(*dscale * (c.slope * c.z)));
    tangent = sum->to(x.scalar_type());
  }
  set_derivatives(y, node, tangent);
  return y;
}

std::tuple<Tensor, Tensor, Tensor> CdfGateBackward::differentiate(const Tensor& dy, const Tensor& x,
                                                                  const Tensor& loc,
                                                                  const Tensor& scale,
                                                                  std::string_view gate) {
  if (!is_differentiated(dy, x, loc, scale)) return below_autograd(dy, x, loc, scale, gate);
  check_cdf_gate(name(), x, loc, scale, gate, {{"dy", dy}});
  return composed_gradients(dy, x, loc, scale, gate);
}

// A loc or scale per example is no vector along the batch's last dimension.
Tensor CdfGateForward::batch(const Tensor& x, const Tensor& loc, const Tensor& scale,
                             std::string_view gate) {
  check_cdf_gate(name(), x, loc, scale, gate);
  const int64_t level = level_of(x);
  if (level > std::max(level_of(loc), level_of(scale))) {
    const auto* impl = at::functorch::maybeGetBatchedImpl(x);
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    const Tensor whole = impl->value().movedim(impl->bdim(), 0);
    return at::functorch::makeBatched(cdf_gate_forward(whole, loc, scale, gate), 0, level);
  }
  const Composition c(x, loc, scale, gate);
  return (x * c.value).to(x.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> CdfGateBackward::batch(const Tensor& dy, const Tensor& x,
                                                          const Tensor& loc, const Tensor& scale,
                                                          std::string_view gate) {
  check_cdf_gate(name(), x, loc, scale, gate, {{"dy", dy}});
  return composed_gradients(dy, x, loc, scale, gate);
}

}  // namespace gelu_kernels
