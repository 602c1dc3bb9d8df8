// The public operators of a linear layer after a gate or a gated linear unit, and their checks.
#include "csrc/ops/linear/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>

namespace gelu_kernels {

void check_rows(const char* op, const Tensor& dy, const Tensor& x) {
  check_dtype(op, dy, "dy");
  TORCH_CHECK_VALUE(x.dim() > 0 && dy.dim() == x.dim() &&
                        dy.sym_sizes().slice(0, static_cast<size_t>(dy.dim() - 1)) ==
                            x.sym_sizes().slice(0, static_cast<size_t>(x.dim() - 1)),
                    "gelu_kernels::", op, ": dy must have a row for each row of x, ", x.sym_sizes(),
                    ", got ", dy.sym_sizes());
  TORCH_CHECK_VALUE(dy.device() == x.device(), "gelu_kernels::", op,
                    ": dy must be on the device of x, ", x.device(), ", got ", dy.device());
}

namespace {

// The parameters of the linear layer, checked for a hidden tensor with `features` features.
// Autocast casts them as it does for torch's own linear layer, which casts the hidden tensor too.
struct Layer {
  Layer(const char* op, const Tensor& x, const c10::SymInt& features, const Tensor& given_weight,
        const OptionalTensor& given_bias) {
    using namespace at::autocast;
    const auto device = x.device().type();
    const bool casts = is_autocast_available(device) && is_autocast_enabled(device);
    const auto cast = [&](const Tensor& t) {
      return casts ? cached_cast(get_autocast_dtype(device), t, device) : t;
    };
    weight = cast(given_weight);
    if (given_bias) bias = cast(*given_bias);
    const bool is_cast = casts && x.scalar_type() != at::kDouble;
    check(op, x, is_cast ? get_autocast_dtype(device) : x.scalar_type(), features);
  }

  Tensor weight;
  OptionalTensor bias;

 private:
  void check(const char* op, const Tensor& x, at::ScalarType dtype, const c10::SymInt& features) {
    TORCH_CHECK_VALUE(weight.dim() == 2, "gelu_kernels::", op, ": weight must be 2-d, got ",
                      weight.dim(), " dimensions");
    TORCH_CHECK_VALUE(weight.sym_size(1) == features, "gelu_kernels::", op,
                      ": weight must have a column for each hidden feature, ", features,
                      ", got shape ", weight.sym_sizes());
    check_parameter(op, {"weight", weight}, x, dtype);
    if (!bias) return;
    TORCH_CHECK_VALUE(bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0),
                      "gelu_kernels::", op, ": bias must be a vector as long as weight has rows, ",
                      weight.sym_size(0), ", got shape ", bias->sym_sizes());
    check_parameter(op, {"bias", *bias}, x, dtype);
  }

  static void check_parameter(const char* op, const Argument& argument, const Tensor& x,
                              at::ScalarType dtype) {
    const auto& [name, t] = argument;
    TORCH_CHECK_TYPE(t.layout() == at::kStrided, "gelu_kernels::", op, ": ", name,
                     " must be a strided tensor, got layout ", t.layout());
    TORCH_CHECK_TYPE(t.scalar_type() == dtype, "gelu_kernels::", op, ": ", name,
                     " must have the dtype of x, ", dtype_name(dtype), ", got ",
                     dtype_name(t.scalar_type()));
    TORCH_CHECK_VALUE(t.device() == x.device(), "gelu_kernels::", op, ": ", name,
                      " must be on the device of x, ", x.device(), ", got ", t.device());
  }
};

void check_has_features(const char* op, const Tensor& x) {
  check_input(op, x);
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the weight, got a 0-d tensor");
}

}  // namespace

// Jagged tensors have their own gradients for a linear layer, which keep the hidden tensor.
Tensor GateLinear::compose(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                           const OptionalTensor& gate_bias, std::string_view gate) {
  check_has_features(name(), x);
  gate = gate_name(name(), gate);
  const Layer layer(name(), x, x.sym_size(-1), weight, bias);
  if (x.layout() == at::kJagged) {
    return at::linear(
        FusedGate::compose(x, gate_bias, gate, /*save=*/std::nullopt, /*seed=*/std::nullopt),
        layer.weight, layer.bias);
  }
  const OptionalTensor own_bias = gate_bias ? cast_under_autocast(*gate_bias, x) : gate_bias;
  if (own_bias) check_bias(name(), {"gate_bias", *own_bias}, x);
  return gate_linear(x, own_bias, layer.weight, layer.bias, gate);
}

Tensor GluLinear::compose(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                          const OptionalTensor& bias, std::string_view gate,
                          std::optional<double> limit, double up_offset) {
  check_has_features(name(), x);
  gate = gate_name(name(), gate);
  const OptionalTensor up_like_x = up ? cast_under_autocast(*up, x) : up;
  const GluOptions options{std::nullopt, gate, limit, up_offset};
  up ? check_glu(name(), x, *up_like_x, options) : check_glu_halves(name(), x, options);
  const c10::SymInt features = up ? x.sym_size(-1) : x.sym_size(-1) / 2;
  const Layer layer(name(), x, features, weight, bias);
  if (x.layout() == at::kJagged) {
    const Tensor y = FusedGlu::compose(x, up_like_x, gate, limit, up_offset, std::nullopt);
    return at::linear(y, layer.weight, layer.bias);
  }
  return glu_linear(x, up_like_x, layer.weight, layer.bias, gate, limit, up_offset);
}

}  // namespace gelu_kernels
