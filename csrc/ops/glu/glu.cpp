// The public operator of the gated linear unit, composed of core operators, and the core operators'
// checks.
#include "csrc/ops/glu/glu.h"

#include <cmath>

#include "csrc/ops/jagged.h"

namespace gelu_kernels {

namespace {

void check_weight(const char* op, const Tensor& weight, const Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the weight, got a 0-d tensor");
  const auto rows = x.sym_sizes().slice(0, static_cast<size_t>(x.dim() - 1));
  TORCH_CHECK_VALUE(weight.sym_sizes() == rows, "gelu_kernels::", op,
                    ": weight must have a number for each row of x, ", rows, ", got ",
                    weight.sym_sizes());
  check_beside(op, {"weight", weight}, {"x", x});
}

void check_numbers(const char* op, std::optional<double> limit, double up_offset) {
  TORCH_CHECK_VALUE(!limit || *limit > 0, "gelu_kernels::", op, ": limit must be positive, got ",
                    *limit);
  TORCH_CHECK_VALUE(std::isfinite(up_offset), "gelu_kernels::", op,
                    ": up_offset must be finite, got ", up_offset);
}

void check_has_halves(const char* op, const Tensor& x) {
  check_input(op, x);
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the two halves, got a 0-d tensor");
  TORCH_CHECK_VALUE(x.sym_size(-1) % 2 == 0, "gelu_kernels::", op,
                    ": the last dimension of x must be even, got length ", x.sym_size(-1));
}

Gate check_options(const char* op, const Tensor& x, const GluOptions& options) {
  if (options.weight) check_weight(op, *options.weight, x);
  check_numbers(op, options.limit, options.up_offset);
  return gate_named(op, options.gate);
}

}  // namespace

Gate check_glu(const char* op, const Tensor& x, const Tensor& up, const GluOptions& options,
               const OptionalTensor& dy) {
  check_input(op, x);
  const Gate gate = check_options(op, x, options);
  if (dy) check_like(op, {"dy", *dy}, {"x", x});
  check_like(op, {"up", up}, {"x", x});
  return gate;
}

Halves::Halves(const Tensor& whole) {
  const c10::SymInt half = whole.sym_size(-1) / 2;
  x = whole.narrow_symint(-1, 0, half);
  up = whole.narrow_symint(-1, half, half);
}

Gate check_glu_halves(const char* op, const Tensor& x, const GluOptions& options,
                      const OptionalTensor& dy) {
  check_has_halves(op, x);
  if (dy) check_like(op, {"dy", *dy}, {"a half of x", Halves(x).x});
  return check_options(op, x, options);
}

namespace {

// Jagged tensors have operators of two tensors, and none that changes the last dimension.
Tensor compose_jagged(const char* op, const Tensor& x, const OptionalTensor& up,
                      const GluOptions& options) {
  const auto& [weight, gate, limit, up_offset] = options;
  if (options.is_plain()) {
    if (up) return glu_forward(x, *up, weight, gate, limit, up_offset);
    const auto halves = x.chunk(2, -1);
    return glu_forward(halves[0], halves[1], weight, gate, limit, up_offset);
  }
  return map_values(op, x, [&](const Tensor& values) {
    const auto values_of = [&](const OptionalTensor& t, const char* name) {
      return t ? OptionalTensor(jagged_values(op, {name, *t})) : t;
    };
    return FusedGlu::compose(values, values_of(up, "up"), gate, limit, up_offset,
                             values_of(weight, "weight"));
  });
}

}  // namespace

Tensor FusedGlu::compose(const Tensor& x, const OptionalTensor& up, std::string_view gate,
                         std::optional<double> limit, double up_offset,
                         const OptionalTensor& weight) {
  check_input(name(), x);
  gate = gate_name(name(), gate);
  const OptionalTensor up_like_x = up ? cast_under_autocast(*up, x) : up;
  const OptionalTensor weight_like_x = weight ? cast_under_autocast(*weight, x) : weight;
  const GluOptions options{weight_like_x, gate, limit, up_offset};
  check_options(name(), x, options);
  if (up) check_like(name(), {"up", *up_like_x}, {"x", x});
  if (!up) check_has_halves(name(), x);
  if (x.layout() == at::kJagged) return compose_jagged(name(), x, up_like_x, options);
  if (up) return glu_forward(x, *up_like_x, weight_like_x, gate, limit, up_offset);
  return glu_halves_forward(x, weight_like_x, gate, limit, up_offset);
}

}  // namespace gelu_kernels
