// The public operators of the SOI map, composed of core operators, and the core operators' checks.
#include "csrc/ops/soi/soi.h"

#include "csrc/ops/jagged.h"

namespace gelu_kernels {

Gate check_soi_forward(const char* op, const Tensor& x, const OptionalTensor& bias,
                       const Tensor& seed, std::string_view gate, const GlobalIndex& index) {
  const Gate id = check_gate(op, x, bias, gate);
  check_draw(op, x, seed, index);
  return id;
}

Gate check_soi_cdf_forward(const char* op, const Tensor& x, const Tensor& loc, const Tensor& scale,
                           const Tensor& seed, std::string_view gate, const GlobalIndex& index) {
  const Gate id = check_cdf_gate(op, x, loc, scale, gate);
  check_draw(op, x, seed, index);
  return id;
}

void check_soi_backward(const char* op, const Tensor& dy, const Tensor& mask, bool has_bias) {
  check_dtype(op, dy, "dy");
  TORCH_CHECK_VALUE(!has_bias || dy.dim() > 0, "gelu_kernels::", op,
                    ": dy must have a last dimension for the bias, got a 0-d tensor");
  check_mask(op, mask, {"dy", dy});
}

namespace {

Tensor apply_soi_map(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate,
                     const std::optional<at::Generator>& generator) {
  check_input(op, x);
  if (x.layout() == at::kJagged) {
    return map_values(op, x, [&](const Tensor& values) {
      return apply_soi_map(op, values, bias, gate, generator);
    });
  }
  bias = bias_for(op, std::move(bias), x);
  gate = gate_name(op, gate);  // checked before a seed is drawn
  return std::get<0>(soi_forward(x, bias, draw_seed(op, x, generator), gate, /*offset=*/0,
                                 /*row_length=*/0,
                                 /*row_stride=*/0));
}

}  // namespace

Tensor SoiMap::compose(const Tensor& x, std::string_view gate, const OptionalTensor& loc,
                       const OptionalTensor& scale, const std::optional<at::Generator>& generator) {
  if (!loc && !scale) return apply_soi_map(name(), x, std::nullopt, gate, generator);
  check_input(name(), x);
  if (x.layout() == at::kJagged) {
    return map_values(name(), x, [&](const Tensor& values) {
      return compose(values, gate, loc, scale, generator);
    });
  }
  const auto [own_loc, own_scale] =
      parameters_for(name(), loc ? *loc : x.new_zeros({}), scale ? *scale : x.new_ones({}), x);
  gate = gate_name(name(), gate);
  return std::get<0>(soi_cdf_forward(x, own_loc, own_scale, draw_seed(name(), x, generator), gate,
                                     /*offset=*/0, /*row_length=*/0, /*row_stride=*/0));
}

Tensor FusedBiasSoiMap::compose(const Tensor& x, const Tensor& bias, std::string_view gate,
                                const std::optional<at::Generator>& generator) {
  return apply_soi_map(name(), x, bias, gate, generator);
}

}  // namespace gelu_kernels
