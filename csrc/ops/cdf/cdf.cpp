// The public operator of a gate with a location and a scale, composed of core operators, and the
// core operators' checks.
#include "csrc/ops/cdf/cdf.h"

#include <ATen/Functions.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/functorch/BatchedTensorImpl.h>

#include "csrc/ops/jagged.h"

namespace gelu_kernels {
namespace {

void check_parameter(const char* op, const Argument& parameter, const Tensor& x) {
  const auto& [name, t] = parameter;
  TORCH_CHECK_VALUE(t.dim() <= 1, "gelu_kernels::", op, ": ", name, " must be 0-d or 1-d, got ",
                    t.dim(), " dimensions");
  check_along(op, parameter, x);
}

// Checks that no number of it is negative or NaN, unless that would wait for a device or a graph is
// being traced.
void check_numbers(const char* op, const Tensor& scale) {
  if (const auto* batched = at::functorch::maybeGetBatchedImpl(scale)) {
    return check_numbers(op, batched->value());
  }
  if (at::isTensorSubclassLike(scale) || !scale.is_cpu() || scale.numel() == 0) return;
  const at::NoGradGuard guard;
  const Tensor least = scale.dim() == 0 ? scale : scale.amin();  // NaN if any number is
  const double number = least.item<double>();
  TORCH_CHECK_VALUE(number >= 0, "gelu_kernels::", op, ": scale must be at least 0, got ", number);
}

void check_parameters(const char* op, const Tensor& x, const Tensor& loc, const Tensor& scale) {
  check_parameter(op, {"loc", loc}, x);
  check_parameter(op, {"scale", scale}, x);
  check_numbers(op, scale);
}

}  // namespace

Gate check_cdf_gate(const char* op, const Tensor& x, const Tensor& loc, const Tensor& scale,
                    std::string_view gate, at::ArrayRef<Argument> like_x) {
  check_input(op, x);
  check_parameters(op, x, loc, scale);
  for (const Argument& argument : like_x) check_like(op, argument, {"x", x});
  return gate_named(op, gate);
}

Parameters parameters_for(const char* op, const Tensor& loc, const Tensor& scale, const Tensor& x) {
  Parameters own{cast_under_autocast(loc, x), cast_under_autocast(scale, x)};
  check_parameters(op, x, own[0], own[1]);
  return own;
}

Tensor CdfGate::compose(const Tensor& x, const Tensor& loc, const Tensor& scale,
                        std::string_view gate) {
  gate = gate_name(name(), gate);
  check_input(name(), x);
  if (x.layout() == at::kJagged) {
    return map_values(name(), x,
                      [&](const Tensor& values) { return compose(values, loc, scale, gate); });
  }
  const auto [own_loc, own_scale] = parameters_for(name(), loc, scale, x);
  return cdf_gate_forward(x, own_loc, own_scale, gate);
}

}  // namespace gelu_kernels
