// The operators whose results are quantised: the gate, the gated linear unit, and their gradients,
// in the bits of fused_gate and fused_glu, rounded once more, to eight bits.
#pragma once

#include <array>

#include "csrc/ops/glu/glu.h"
#include "csrc/ops/quantized/kernels.h"
#include "csrc/ops/quantized/results.h"

namespace gelu_kernels {

// Runs a pass over its inputs, matrices of one shape and of the dtype of x. Writes the results to
// `parts`, and dbias if it is given.
template <class Device, size_t outputs, class Pass, class... Inputs>
void write_quantized(const char* op, Pass pass, Gate gate, const Recipe& recipe,
                     const OptionalTensor& bias, const OptionalTensor& scale, float* amax,
                     const OptionalTensor& dbias,
                     const std::array<QuantizedResult, outputs>& results, const Tensor& first,
                     const Inputs&... rest) {
  using Kernels = QuantizedKernels<Device>;
  if (first.numel() == 0) {
    if (dbias) dbias->zero_();
    return;
  }
  const Tensor own_bias = bias ? Kernels::with_vectors(bias->contiguous()) : Tensor();
  const auto run = [&](int64_t rows, int64_t columns, const auto&... in) {
    QuantizedOperands m = {{in...}, bias ? data_of(own_bias) : nullptr, nullptr, rows, columns, {}};
    m.quantization = {recipe.is_e5m2(),
                      recipe.scaling,
                      recipe.blocks(),
                      recipe.is_e5m2() ? e5m2::largest : e4m3fn::largest,
                      scale ? scale->template const_data_ptr<float>() : nullptr,
                      amax,
                      {}};
    std::copy(results.begin(), results.end(), m.quantization.results);
    Tensor partial;
    if (dbias) {
      partial = at::empty({RowBlocks(rows).count, columns}, first.options().dtype(at::kFloat));
      m.partials = data_of(partial);
    }
    Kernels::template run<static_cast<int>(outputs)>(op, pass, gate, first, m);
    if (dbias) {
      Device::add_partial_sums(op, *dbias,
                               {data_of(partial), partial.size(0), columns, data_of(*dbias)});
    }
  };
  with_matrices<0>(first.size(-1), run, Kernels::with_vectors(first),
                   Kernels::with_vectors(rest)...);
}

// The same with one result, all of `to`.
template <class Device, class Pass, class... Inputs>
void write_one(const char* op, Pass pass, Gate gate, const Recipe& recipe,
               const OptionalTensor& bias, const OptionalTensor& scale, const OptionalTensor& dbias,
               const QuantizedTensors& to, const Tensor& first, const Inputs&... rest) {
  clear(recipe, to);
  float* amax =
      recipe.scaling == Scaling::TensorWise ? std::get<1>(to).template data_ptr<float>() : nullptr;
  write_quantized<Device, 1>(op, pass, gate, recipe, bias, scale, amax, dbias,
                             {part_of(recipe, to)}, first, rest...);
}

// data = g(x + bias)/scale
struct QuantizedGateForward
    : Operator<QuantizedGateForward,
               QuantizedTensors(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                std::string_view, at::ScalarType, std::string_view,
                                std::string_view, std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_gate_forward(Tensor x, Tensor? bias, Tensor? scale, str gate, ScalarType dtype, "
      "str scaling, str along, str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& x, const OptionalTensor& bias,
                                  const OptionalTensor& scale, std::string_view gate,
                                  at::ScalarType dtype, std::string_view scaling,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle) {
    const Gate id = check_gate(name(), x, bias, gate);
    const Recipe recipe = recipe_of(name(), {dtype, scaling, along, mode, swizzle}, x, scale);
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::forward, id, recipe, bias, scale,
                        std::nullopt, to, x);
    }
    return to;
  }
};

// data = g(x)·up/scale; without up, of the halves of x
struct QuantizedGluForward
    : Operator<QuantizedGluForward,
               QuantizedTensors(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                                std::string_view, at::ScalarType, std::string_view,
                                std::string_view, std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_glu_forward(Tensor x, Tensor? up, Tensor? scale, str gate, ScalarType dtype, "
      "str scaling, str along, str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& x, const OptionalTensor& up,
                                  const OptionalTensor& scale, std::string_view gate,
                                  at::ScalarType dtype, std::string_view scaling,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle) {
    const GluOptions plain{std::nullopt, gate, std::nullopt, 0};
    const Gate id = up ? check_glu(name(), x, *up, plain) : check_glu_halves(name(), x, plain);
    const Recipe recipe = recipe_of(name(), {dtype, scaling, along, mode, swizzle}, x, scale);
    const auto [gated, factor] = up ? Halves{x, *up} : Halves(x);
    QuantizedTensors to = empty_results(name(), recipe, x, gated.sym_size(-1));
    if constexpr (Device::has_data) {
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::glu_forward, id, recipe,
                        std::nullopt, scale, std::nullopt, to, gated, factor);
    }
    return to;
  }
};

// data = dy·g'(x + bias)/scale
struct QuantizedGateBackward
    : Operator<QuantizedGateBackward,
               QuantizedTensors(const Tensor&, const Tensor&, const OptionalTensor&,
                                std::string_view, at::ScalarType, std::string_view,
                                std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_gate_backward(Tensor dy, Tensor x, Tensor? bias, str gate, ScalarType dtype, "
      "str along, str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                                  std::string_view gate, at::ScalarType dtype,
                                  std::string_view along, std::string_view mode,
                                  std::string_view swizzle) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    const Recipe recipe = mx_recipe_of(name(), dtype, along, mode, swizzle, x);
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::backward, id, recipe, bias,
                        std::nullopt, std::nullopt, to, dy, x);
    }
    return to;
  }
};

// The same, and dbias, the sum of dx over all but the last dimension.
struct QuantizedGateBackwardBias
    : Operator<QuantizedGateBackwardBias,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, std::string_view, at::ScalarType,
                   std::string_view, std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_gate_backward_bias(Tensor dy, Tensor x, Tensor bias, str gate, ScalarType dtype, "
      "str along, str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales, Tensor dbias)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& bias, std::string_view gate,
      at::ScalarType dtype, std::string_view along, std::string_view mode,
      std::string_view swizzle) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    const Recipe recipe = mx_recipe_of(name(), dtype, along, mode, swizzle, x);
    const QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    const Tensor dbias = Device::empty_contiguous(bias);
    if constexpr (Device::has_data) {
      write_one<Device>(name(), &QuantizedKernels<Device>::Passes::backward, id, recipe, bias,
                        std::nullopt, dbias, to, dy, x);
    }
    return std::tuple_cat(to, std::tuple(dbias));
  }
};

// data = dy·up·g'(x)/scale, and the same of dy·g(x)
struct QuantizedGluBackward
    : Operator<QuantizedGluBackward,
               std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>(
                   const Tensor&, const Tensor&, const Tensor&, std::string_view, at::ScalarType,
                   std::string_view, std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_glu_backward(Tensor dy, Tensor x, Tensor up, str gate, ScalarType dtype, "
      "str along, str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales, "
      "Tensor up_data, Tensor up_scales, Tensor up_column_data, Tensor up_column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> compute(
      const Tensor& dy, const Tensor& x, const Tensor& up, std::string_view gate,
      at::ScalarType dtype, std::string_view along, std::string_view mode,
      std::string_view swizzle) {
    const GluOptions plain{std::nullopt, gate, std::nullopt, 0};
    const Gate id = check_glu(name(), x, up, plain, dy);
    const Recipe recipe = mx_recipe_of(name(), dtype, along, mode, swizzle, x);
    const QuantizedTensors to_dx = empty_results(name(), recipe, x, x.sym_size(-1));
    const QuantizedTensors to_dup = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      clear(recipe, to_dx);
      clear(recipe, to_dup);
      write_quantized<Device, 2>(name(), &QuantizedKernels<Device>::Passes::glu_backward, id,
                                 recipe, std::nullopt, std::nullopt, nullptr, std::nullopt,
                                 {part_of(recipe, to_dx), part_of(recipe, to_dup)}, dy, x, up);
    }
    return std::tuple_cat(to_dx, to_dup);
  }
};

// The same for the halves of x: dx and dup are the halves of one matrix.
struct QuantizedGluHalvesBackward
    : Operator<QuantizedGluHalvesBackward,
               QuantizedTensors(const Tensor&, const Tensor&, std::string_view, at::ScalarType,
                                std::string_view, std::string_view, std::string_view)> {
  static constexpr const char* schema =
      "quantized_glu_halves_backward(Tensor dy, Tensor x, str gate, ScalarType dtype, str along, "
      "str mode, str swizzle) -> "
      "(Tensor data, Tensor scales, Tensor column_data, Tensor column_scales)";
  using Batch = NoBatch;
  static Signature differentiate;

  template <class Device>
  static QuantizedTensors compute(const Tensor& dy, const Tensor& x, std::string_view gate,
                                  at::ScalarType dtype, std::string_view along,
                                  std::string_view mode, std::string_view swizzle) {
    const GluOptions plain{std::nullopt, gate, std::nullopt, 0};
    const Gate id = check_glu_halves(name(), x, plain, dy);
    const Recipe recipe = mx_recipe_of(name(), dtype, along, mode, swizzle, x);
    const Halves in(x);
    check_sizes(name(), recipe, x, in.x.sym_size(-1));
    QuantizedTensors to = empty_results(name(), recipe, x, x.sym_size(-1));
    if constexpr (Device::has_data) {
      clear(recipe, to);
      write_quantized<Device, 2>(name(), &QuantizedKernels<Device>::Passes::glu_backward, id,
                                 recipe, std::nullopt, std::nullopt, nullptr, std::nullopt,
                                 {part_of(recipe, to), part_of(recipe, to, in.x.size(-1))}, dy,
                                 in.x, in.up);
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
      "Tensor? scale=None, str along=\"row\", str mode=\"floor\", str swizzle=\"NO_SWIZZLE\") -> "
      "Tensor[]";
  C10_EXPORT static std::vector<Tensor> compose(const Tensor& x, const OptionalTensor& bias,
                                                std::string_view gate, at::ScalarType dtype,
                                                std::string_view scaling,
                                                const OptionalTensor& scale, std::string_view along,
                                                std::string_view mode, std::string_view swizzle);
};

// g(x)·up, likewise; without up, of the halves of x
struct QuantizedGlu : PublicOperator<QuantizedGlu> {
  static constexpr const char* schema =
      "quantized_glu(Tensor x, Tensor? up=None, *, str gate, ScalarType dtype, str scaling, "
      "Tensor? scale=None, str along=\"row\", str mode=\"floor\", str swizzle=\"NO_SWIZZLE\") -> "
      "Tensor[]";
  C10_EXPORT static std::vector<Tensor> compose(const Tensor& x, const OptionalTensor& up,
                                                std::string_view gate, at::ScalarType dtype,
                                                std::string_view scaling,
                                                const OptionalTensor& scale, std::string_view along,
                                                std::string_view mode, std::string_view swizzle);
};

}  // namespace gelu_kernels
