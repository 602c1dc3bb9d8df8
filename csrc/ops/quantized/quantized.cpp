// The public operators that quantise, composed of core operators.
#include "csrc/ops/quantized/quantized.h"

namespace gelu_kernels {

namespace {

std::vector<Tensor> wanted(std::string_view along, QuantizedTensors all) {
  auto& [data, scales, column_data, column_scales] = all;
  if (along == "row") return {data, scales};
  if (along == "column") return {column_data, column_scales};
  return {data, scales, column_data, column_scales};
}

}  // namespace

std::vector<Tensor> QuantizedGate::compose(const Tensor& x, const OptionalTensor& bias,
                                           std::string_view gate, at::ScalarType dtype,
                                           std::string_view scaling, const OptionalTensor& scale,
                                           std::string_view along,
                                           std::optional<std::string_view> mode,
                                           std::string_view swizzle, bool packed,
                                           const OptionalTensor& offsets) {
  check_input(name(), x);
  gate = gate_name(name(), gate);
  const std::string_view rule = mode_or_default(mode, scaling);
  recipe_of(name(), {offsets, dtype, scaling, along, rule, swizzle, packed}, x, scale);
  return wanted(along, quantized_gate_forward(x, bias_for(name(), bias, x), scale, offsets, gate,
                                              dtype, scaling, along, rule, swizzle, packed));
}

std::vector<Tensor> QuantizedGlu::compose(
    const Tensor& x, const OptionalTensor& up, std::string_view gate, std::optional<double> limit,
    double up_offset, const OptionalTensor& weight, at::ScalarType dtype, std::string_view scaling,
    const OptionalTensor& scale, std::string_view along, std::optional<std::string_view> mode,
    std::string_view swizzle, bool packed, const OptionalTensor& offsets) {
  gate = gate_name(name(), gate);
  const OptionalTensor up_like_x = up ? cast_under_autocast(*up, x) : up;
  const OptionalTensor weight_like_x = weight ? cast_under_autocast(*weight, x) : weight;
  const GluOptions options{weight_like_x, gate, limit, up_offset};
  up ? check_glu(name(), x, *up_like_x, options) : check_glu_halves(name(), x, options);
  const std::string_view rule = mode_or_default(mode, scaling);
  recipe_of(name(), {offsets, dtype, scaling, along, rule, swizzle, packed}, x, scale);
  return wanted(along,
                quantized_glu_forward(x, up_like_x, weight_like_x, scale, offsets, gate, limit,
                                      up_offset, dtype, scaling, along, rule, swizzle, packed));
}

}  // namespace gelu_kernels
