// The operators of a gate g(x) = x·F(x), and their kernels over a device. A bias goes along the
// last dimension.
#pragma once

#include <c10/macros/Export.h>

#include "csrc/ops/check.h"
#include "csrc/ops/device/column_sums.h"
#include "csrc/ops/operator.h"

namespace gelu_kernels {

// Checks all arguments of a core operator and returns the gate. `like_x` lists the other tensors,
// which must be shaped like x, and their names.
Gate check_gate(const char* op, const Tensor& x, const OptionalTensor& bias, std::string_view gate,
                at::ArrayRef<Argument> like_x = {});

// y = g(x + bias)
struct GateForward
    : Operator<GateForward, Tensor(const Tensor&, const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_forward(Tensor x, Tensor? bias, str gate) -> Tensor y";
  static constexpr bool is_pointwise = true;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
    const Gate id = check_gate(name(), x, bias, gate);
    Tensor y = Device::empty_like(x);
    Device::map(name(), &Device::Passes::forward, id, bias, y, x);
    return y;
  }
};

// dx = dy·g'(x + bias)
struct GateBackward : Operator<GateBackward, Tensor(const Tensor&, const Tensor&,
                                                    const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_backward(Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx";
  static constexpr bool is_pointwise = true;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                        std::string_view gate) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    Tensor dx = Device::empty_like(x);
    Device::map(name(), &Device::Passes::backward, id, bias, dx, dy, x);
    return dx;
  }
};

// The same, and dbias, its sum over all but the last dimension.
struct GateBackwardBias
    : Operator<GateBackwardBias, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&,
                                                            const Tensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_backward_bias(Tensor dy, Tensor x, Tensor bias, str gate) -> (Tensor dx, Tensor dbias)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                            std::string_view gate) {
    const Gate id = check_gate(name(), x, bias, gate, {{"dy", dy}});
    Tensor dx = Device::empty_like(x);
    Tensor dbias = Device::empty_contiguous(bias);
    if constexpr (Device::has_data) {
      const Tensor contiguous_bias = bias.contiguous();
      ColumnSums sums = {};
      sums.parameters[0] = data_of(contiguous_bias);
      sum_columns<Device>(name(), Device::column_sums(id, x), sums, dbias, dx, dy, x);
    }
    return {std::move(dx), std::move(dbias)};
  }
};

// dx = ddx·dy·g''(x + bias)
struct GateDoubleBackward
    : Operator<GateDoubleBackward, Tensor(const Tensor&, const Tensor&, const Tensor&,
                                          const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_double_backward(Tensor ddx, Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx";
  static constexpr bool is_pointwise = true;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                        const OptionalTensor& bias, std::string_view gate) {
    const Gate id = check_gate(name(), x, bias, gate, {{"ddx", ddx}, {"dy", dy}});
    Tensor dx = Device::empty_like(x);
    Device::map(name(), &Device::Passes::double_backward, id, bias, dx, ddx, dy, x);
    return dx;
  }
};

inline constexpr GateForward gate_forward;
inline constexpr GateBackward gate_backward;
inline constexpr GateBackwardBias gate_backward_bias;
inline constexpr GateDoubleBackward gate_double_backward;

// y = g(x), the gate by the name that PyTorch has for it. save="8bit" or "4bit" saves the
// derivative in 8 or 4 bits for backward instead of x (csrc/ops/coded); a seed asks for dithering.
struct FusedGelu : PublicOperator<FusedGelu> {
  static constexpr const char* schema =
      "fused_gelu(Tensor x, *, str approximate=\"none\", str? save=None, Tensor? seed=None) -> "
      "Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, std::string_view approximate,
                                   std::optional<std::string_view> save,
                                   const OptionalTensor& seed);
};

// y = g(x + bias), likewise
struct FusedBiasGelu : PublicOperator<FusedBiasGelu> {
  static constexpr const char* schema =
      "fused_bias_gelu(Tensor x, Tensor bias, *, str approximate=\"none\", str? save=None, "
      "Tensor? seed=None) -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const Tensor& bias,
                                   std::string_view approximate,
                                   std::optional<std::string_view> save,
                                   const OptionalTensor& seed);
};

// y = g(x + bias), of any gate
struct FusedGate : PublicOperator<FusedGate> {
  static constexpr const char* schema =
      "fused_gate(Tensor x, Tensor? bias=None, *, str gate, str? save=None, Tensor? seed=None) "
      "-> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& bias,
                                   std::string_view gate, std::optional<std::string_view> save,
                                   const OptionalTensor& seed);
};

}  // namespace gelu_kernels
