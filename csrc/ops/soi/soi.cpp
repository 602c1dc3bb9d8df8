// The public operators of the SOI map in terms of the core operators, and the checks of these.
#include "csrc/ops/soi/soi.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>

#include <limits>

#include "csrc/ops/jagged.h"

namespace gelu_kernels {

namespace {

void check_draw(const char* op, const Tensor& x, const Tensor& seed, const GlobalIndex& index) {
  TORCH_CHECK_VALUE(seed.dim() == 0, "gelu_kernels::", op, ": seed must be 0-d, got ", seed.dim(),
                    " dimensions");
  TORCH_CHECK_TYPE(seed.scalar_type() == at::kLong, "gelu_kernels::", op,
                   ": seed must be int64, got ", seed.scalar_type());
  TORCH_CHECK_VALUE(seed.device() == x.device(), "gelu_kernels::", op,
                    ": seed must be on the device of x, ", x.device(), ", got ", seed.device());
  const auto check_index = [op](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value >= 0, "gelu_kernels::", op, ": ", name, " must not be negative, got ",
                      value);
  };
  check_index("offset", index.offset);
  check_index("row_length", index.row_length);
  check_index("row_stride", index.row_stride);
}

}  // namespace

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
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kByte, "gelu_kernels::", op,
                   ": mask must be uint8, got ", mask.scalar_type());
  TORCH_CHECK_VALUE(mask.dim() == 1 && mask.sym_size(0) == mask_bytes(dy), "gelu_kernels::", op,
                    ": mask must be a vector of a bit for each element of dy, ", mask_bytes(dy),
                    " bytes, got shape ", mask.sym_sizes());
  TORCH_CHECK_VALUE(mask.device() == dy.device(), "gelu_kernels::", op,
                    ": mask must be on the device of dy, ", dy.device(), ", got ", mask.device());
}

namespace {

Tensor draw_seed(const char* op, const Tensor& x, const std::optional<at::Generator>& generator) {
  TORCH_CHECK_VALUE(!generator || generator->device() == x.device(), "gelu_kernels::", op,
                    ": generator must be on the device of x, ", x.device(), ", got ",
                    generator->device());
  constexpr int64_t end = std::numeric_limits<int64_t>::max();
  const auto options = at::TensorOptions(x.device()).dtype(at::kLong);
  // Both draw the same number. torch.compile gives randint() a generator of its own; vmap cannot
  // make a number for each example of random_().
  constexpr c10::DispatchKeySet functorch(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchVmapMode});
  if (c10::impl::tls_local_dispatch_key_set().included_.has_any(functorch)) {
    return at::randint(end, {}, generator, options);
  }
  return at::empty({}, options).random_(end, generator);
}

Tensor apply_soi_map(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate,
                     const std::optional<at::Generator>& generator) {
  check_input(op, x);
  if (x.layout() == at::kJagged) {
    return map_values(op, x, [&](const Tensor& values) {
      return apply_soi_map(op, values, bias, gate, generator);
    });
  }
  bias = bias_for(op, std::move(bias), x);
  gate_named(op, gate);  // before a seed is drawn
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
  gate_named(name(), gate);
  return std::get<0>(soi_cdf_forward(x, own_loc, own_scale, draw_seed(name(), x, generator), gate,
                                     /*offset=*/0, /*row_length=*/0, /*row_stride=*/0));
}

Tensor FusedBiasSoiMap::compose(const Tensor& x, const Tensor& bias, std::string_view gate,
                                const std::optional<at::Generator>& generator) {
  return apply_soi_map(name(), x, bias, gate, generator);
}

}  // namespace gelu_kernels
