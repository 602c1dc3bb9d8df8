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
                                           std::string_view along, std::string_view mode,
                                           std::string_view swizzle) {
  check_input(name(), x);
  gate = gate_name(name(), gate);
  recipe_of(name(), {dtype, scaling, along, mode, swizzle}, x, scale);
  return wanted(along, quantized_gate_forward(x, bias_for(name(), bias, x), scale, gate, dtype,
                                              scaling, along, mode, swizzle));
}

std::vector<Tensor> QuantizedGlu::compose(const Tensor& x, const OptionalTensor& up,
                                          std::string_view gate, at::ScalarType dtype,
                                          std::string_view scaling, const OptionalTensor& scale,
                                          std::string_view along, std::string_view mode,
                                          std::string_view swizzle) {
  gate = gate_name(name(), gate);
  const OptionalTensor up_like_x = up ? cast_under_autocast(*up, x) : up;
  const GluOptions plain{std::nullopt, gate, std::nullopt, 0};
  up ? check_glu(name(), x, *up_like_x, plain) : check_glu_halves(name(), x, plain);
  recipe_of(name(), {dtype, scaling, along, mode, swizzle}, x, scale);
  return wanted(along, quantized_glu_forward(x, up_like_x, scale, gate, dtype, scaling, along, mode,
                                             swizzle));
}

}  // namespace gelu_kernels
