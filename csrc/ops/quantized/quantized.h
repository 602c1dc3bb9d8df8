// The operators that quantise the results of the gate and of the gated linear unit: in the bits of
// fused_gate and fused_glu, rounded once more, to eight bits.
#pragma once

#include "csrc/ops/quantized/write.h"

namespace gelu_kernels {

// data = g(x + bias)/scale
struct QuantizedGateForward
    : Operator<QuantizedGateForward,
               QuantizedTensors(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                const OptionalTensor&, std::string_view, at::ScalarType,
                                std::string_view, std::string_view, std::string_view,
                                std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_gate_forward(Tensor x, Tensor? bias, Tensor? scale, Tensor? offsets, str gate, "
      "ScalarType dtype, str scaling, str along, str mode, str swizzle, bool packed) -> (Tensor "
      "data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& x, const OptionalTensor& bias,
                                  const OptionalTensor& scale, const OptionalTensor& offsets,
                                  std::string_view gate, at::ScalarType dtype,
                                  std::string_view scaling, std::string_view along,
                                  std::string_view mode, std::string_view swizzle, bool packed) {
    const Gate id = check_gate(name(), x, bias, gate);
    const Recipe recipe =
        recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x, scale);
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      QuantizedExtras extras;
      extras.bias = bias;
      extras.take_scale(recipe, scale, to);
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::forward, id, recipe, extras, to,
                        x);
    }
    return to;
  }
};

// data = g(min(x, limit))·(clamp(up, -limit, limit) + up_offset)·weight/scale; without up, of the
// halves of x
struct QuantizedGluForward
    : Operator<QuantizedGluForward,
               QuantizedTensors(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                const OptionalTensor&, const OptionalTensor&, std::string_view,
                                std::optional<double>, double, at::ScalarType, std::string_view,
                                std::string_view, std::string_view, std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_glu_forward(Tensor x, Tensor? up, Tensor? weight, Tensor? scale, Tensor? offsets, "
      "str gate, float? limit, float up_offset, ScalarType dtype, str scaling, str along, str "
      "mode, str swizzle, bool packed) -> (Tensor data, Tensor scales, Tensor column_data, Tensor "
      "column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& x, const OptionalTensor& up,
                                  const OptionalTensor& weight, const OptionalTensor& scale,
                                  const OptionalTensor& offsets, std::string_view gate,
                                  std::optional<double> limit, double up_offset,
                                  at::ScalarType dtype, std::string_view scaling,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle, bool packed) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = up ? check_glu(name(), x, *up, options) : check_glu_halves(name(), x, options);
    const Recipe recipe =
        recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x, scale);
    const auto [gated, factor] = up ? Halves{x, *up} : Halves(x);
    QuantizedTensors to = empty_results(name(), recipe, x, gated.sym_size(-1));
    if constexpr (Device::has_data) {
      QuantizedExtras extras{std::nullopt, weight, limit, up_offset};
      extras.take_scale(recipe, scale, to);
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::glu_forward, id, recipe, extras,
                        to, gated, factor);
    }
    return to;
  }
};

inline constexpr QuantizedGateForward quantized_gate_forward;
inline constexpr QuantizedGluForward quantized_glu_forward;

// g(x + bias): data and scales along the rows, along the columns, or both in this order
struct QuantizedGate : PublicOperator<QuantizedGate> {
  static constexpr const char* schema =
      "quantized_gate(Tensor x, Tensor? bias=None, *, str gate, ScalarType dtype, str scaling, "
      "Tensor? scale=None, str along=\"row\", str? mode=None, str swizzle=\"NO_SWIZZLE\", bool "
      "packed=False, Tensor? offsets=None) -> Tensor[]";
  C10_EXPORT static std::vector<Tensor> compose(const Tensor& x, const OptionalTensor& bias,
                                                std::string_view gate, at::ScalarType dtype,
                                                std::string_view scaling,
                                                const OptionalTensor& scale, std::string_view along,
                                                std::optional<std::string_view> mode,
                                                std::string_view swizzle, bool packed,
                                                const OptionalTensor& offsets);
};

// FusedGlu's y, likewise; without up, of the halves of x
struct QuantizedGlu : PublicOperator<QuantizedGlu> {
  static constexpr const char* schema =
      "quantized_glu(Tensor x, Tensor? up=None, *, str gate, float? limit=None, float "
      "up_offset=0., Tensor? weight=None, ScalarType dtype, str scaling, Tensor? scale=None, str "
      "along=\"row\", str? mode=None, str swizzle=\"NO_SWIZZLE\", bool packed=False, Tensor? "
      "offsets=None) -> Tensor[]";
  C10_EXPORT static std::vector<Tensor> compose(const Tensor& x, const OptionalTensor& up,
                                                std::string_view gate, std::optional<double> limit,
                                                double up_offset, const OptionalTensor& weight,
                                                at::ScalarType dtype, std::string_view scaling,
                                                const OptionalTensor& scale, std::string_view along,
                                                std::optional<std::string_view> mode,
                                                std::string_view swizzle, bool packed,
                                                const OptionalTensor& offsets);
};

}  // namespace gelu_kernels
