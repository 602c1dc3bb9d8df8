// The core operators whose results are gradients, quantised: in the bits of gate_backward and
// glu_backward, rounded once more, to eight bits.
#pragma once

#include "csrc/ops/quantized/write.h"

namespace gelu_kernels {

// data = dy·g'(x + bias)/scale
struct QuantizedGateBackward
    : Operator<QuantizedGateBackward,
               QuantizedTensors(const Tensor&, const Tensor&, const OptionalTensor&,
                                const OptionalTensor&, std::string_view, at::ScalarType,
                                std::string_view, std::string_view, std::string_view,
                                std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_gate_backward(Tensor dy, Tensor x, Tensor? bias, Tensor? offsets, str gate, "
      "ScalarType dtype, str scaling, str along, str mode, str swizzle, bool packed) -> (Tensor "
      "data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                                  const OptionalTensor& offsets, std::string_view gate,
                                  at::ScalarType dtype, std::string_view scaling,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle, bool packed) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::backward, id, recipe, {bias}, to,
                        dy, x);
    }
    return to;
  }
};

// The same, and dbias, the sum of dx over all but the last dimension. It takes the same pass for
// blocks that begin with the first row; else dx is computed first.
struct QuantizedGateBackwardBias
    : Operator<QuantizedGateBackwardBias,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                   std::string_view, at::ScalarType, std::string_view, std::string_view,
                   std::string_view, std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_gate_backward_bias(Tensor dy, Tensor x, Tensor bias, Tensor? offsets, str gate, "
      "ScalarType dtype, str scaling, str along, str mode, str swizzle, bool packed) -> (Tensor "
      "data, Tensor scales, Tensor column_data, Tensor column_scales, Tensor dbias)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& bias, const OptionalTensor& offsets,
      std::string_view gate, at::ScalarType dtype, std::string_view scaling, std::string_view along,
      std::string_view mode, std::string_view swizzle, bool packed) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    const QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    Tensor dbias;
    if constexpr (!Device::has_data) {
      dbias = Device::empty_contiguous(bias);
    } else if (recipe.has_blocks() && !recipe.has_groups()) {
      dbias = Device::empty_contiguous(bias);
      QuantizedExtras extras;
      extras.bias = bias;
      extras.dbias = dbias;
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::backward, id, recipe, extras, to,
                        dy, x);
    } else {
      Tensor dx;
      std::tie(dx, dbias) = gate_backward_bias(dy, x, bias, gate);
      write_cast<Device>(name(), id, recipe, to, dx);
    }
    return std::tuple_cat(to, std::tuple(dbias));
  }
};

// The gradients dx and dup of QuantizedGluForward's y, quantised
struct QuantizedGluBackward
    : Operator<QuantizedGluBackward,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                   const OptionalTensor&, std::string_view, std::optional<double>, double,
                   at::ScalarType, std::string_view, std::string_view, std::string_view,
                   std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_glu_backward(Tensor dy, Tensor x, Tensor up, Tensor? weight, Tensor? offsets, str "
      "gate, float? limit, float up_offset, ScalarType dtype, str scaling, str along, str mode, "
      "str swizzle, bool packed) -> (Tensor data, Tensor scales, Tensor column_data, Tensor "
      "column_scales, Tensor up_data, Tensor up_scales, Tensor up_column_data, Tensor "
      "up_column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& up, const OptionalTensor& weight,
      const OptionalTensor& offsets, std::string_view gate, std::optional<double> limit,
      double up_offset, at::ScalarType dtype, std::string_view scaling, std::string_view along,
      std::string_view mode, std::string_view swizzle, bool packed) {
    const Gate id = check_glu(name(), x, up, {weight, gate, limit, up_offset}, dy);
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    const QuantizedTensors to_dx = empty_results(name(), recipe, x, x.sym_size(-1));
    const QuantizedTensors to_dup = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      write_two<Device>(name(), id, recipe, {std::nullopt, weight, limit, up_offset}, to_dx, to_dup,
                        /*are_halves=*/false, dy, x, up);
    }
    return std::tuple_cat(to_dx, to_dup);
  }
};

// The same, and dweight as GluBackwardWeight has it: a sum over whole rows, which takes a pass of
// its own.
struct QuantizedGluBackwardWeight
    : Operator<QuantizedGluBackwardWeight,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                   const OptionalTensor&, std::string_view, std::optional<double>, double,
                   at::ScalarType, std::string_view, std::string_view, std::string_view,
                   std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_glu_backward_weight(Tensor dy, Tensor x, Tensor up, Tensor weight, Tensor? "
      "offsets, str gate, float? limit, float up_offset, ScalarType dtype, str scaling, str along, "
      "str mode, str swizzle, bool packed) -> (Tensor data, Tensor scales, Tensor column_data, "
      "Tensor column_scales, Tensor up_data, Tensor up_scales, Tensor up_column_data, Tensor "
      "up_column_scales, Tensor dweight)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& up, const Tensor& weight,
      const OptionalTensor& offsets, std::string_view gate, std::optional<double> limit,
      double up_offset, at::ScalarType dtype, std::string_view scaling, std::string_view along,
      std::string_view mode, std::string_view swizzle, bool packed) {
    const Gate id = check_glu(name(), x, up, {weight, gate, limit, up_offset}, dy);
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    const QuantizedTensors to_dx = empty_results(name(), recipe, x, x.sym_size(-1));
    const QuantizedTensors to_dup = empty_results(name(), recipe, x, x.sym_size(-1));
    Tensor dweight;
    if constexpr (Device::has_data) {
      Tensor dx, dup;
      std::tie(dx, dup, dweight) = glu_backward_weight(dy, x, up, weight, gate, limit, up_offset);
      write_cast<Device>(name(), id, recipe, to_dx, dx);
      write_cast<Device>(name(), id, recipe, to_dup, dup);
    } else {
      dweight = Device::empty_like(weight);
    }
    return std::tuple_cat(to_dx, to_dup, std::tuple(dweight));
  }
};

// The same for the halves of x: dx and dup are the halves of one matrix.
struct QuantizedGluHalvesBackward
    : Operator<QuantizedGluHalvesBackward,
               QuantizedTensors(const Tensor&, const Tensor&, const OptionalTensor&,
                                const OptionalTensor&, std::string_view, std::optional<double>,
                                double, at::ScalarType, std::string_view, std::string_view,
                                std::string_view, std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_glu_halves_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? offsets, str "
      "gate, float? limit, float up_offset, ScalarType dtype, str scaling, str along, str mode, "
      "str swizzle, bool packed) -> (Tensor data, Tensor scales, Tensor column_data, Tensor "
      "column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                  const OptionalTensor& offsets, std::string_view gate,
                                  std::optional<double> limit, double up_offset,
                                  at::ScalarType dtype, std::string_view scaling,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle, bool packed) {
    const Gate id = check_glu_halves(name(), x, {weight, gate, limit, up_offset}, dy);
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    const Halves in(x);
    check_sizes(name(), recipe, x, in.x.sym_size(-1));
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      write_two<Device>(name(), id, recipe, {std::nullopt, weight, limit, up_offset}, to, to,
                        /*are_halves=*/true, dy, in.x, in.up);
    }
    return to;
  }
};

// The same, and dweight.
struct QuantizedGluHalvesBackwardWeight
    : Operator<QuantizedGluHalvesBackwardWeight,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                   std::string_view, std::optional<double>, double, at::ScalarType,
                   std::string_view, std::string_view, std::string_view, std::string_view, bool)> {
  static constexpr const char* schema =
      "quantized_glu_halves_backward_weight(Tensor dy, Tensor x, Tensor weight, Tensor? offsets, "
      "str gate, float? limit, float up_offset, ScalarType dtype, str scaling, str along, str "
      "mode, str swizzle, bool packed) -> (Tensor data, Tensor scales, Tensor column_data, Tensor "
      "column_scales, Tensor dweight)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& weight, const OptionalTensor& offsets,
      std::string_view gate, std::optional<double> limit, double up_offset, at::ScalarType dtype,
      std::string_view scaling, std::string_view along, std::string_view mode,
      std::string_view swizzle, bool packed) {
    const Gate id = check_glu_halves(name(), x, {weight, gate, limit, up_offset}, dy);
    const Recipe recipe =
        gradient_recipe_of(name(), {offsets, dtype, scaling, along, mode, swizzle, packed}, x);
    check_sizes(name(), recipe, x, Halves(x).x.sym_size(-1));
    const QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    Tensor dweight;
    if constexpr (Device::has_data) {
      Tensor dx;
      std::tie(dx, dweight) = glu_halves_backward_weight(dy, x, weight, gate, limit, up_offset);
      write_cast<Device>(name(), id, recipe, to, dx);
    } else {
      dweight = Device::empty_like(weight);
    }
    return std::tuple_cat(to, std::tuple(dweight));
  }
};

}  // namespace gelu_kernels
