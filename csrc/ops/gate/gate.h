// The operators of a gate g(x) = x·F(x). A bias goes along the last dimension.
#pragma once

#include <c10/macros/Export.h>

#include "csrc/ops/check.h"
#include "csrc/ops/operator.h"

namespace gelu_kernels {

// y = g(x + bias)
struct GateForward
    : Operator<GateForward, Tensor(const Tensor&, const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_forward(Tensor x, Tensor? bias, str gate) -> Tensor y";
  static constexpr bool is_pointwise = true;
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

// dx = dy·g'(x + bias)
struct GateBackward : Operator<GateBackward, Tensor(const Tensor&, const Tensor&,
                                                    const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_backward(Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx";
  static constexpr bool is_pointwise = true;
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

// The same, and dbias, its sum over all but the last dimension.
struct GateBackwardBias
    : Operator<GateBackwardBias, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&,
                                                            const Tensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_backward_bias(Tensor dy, Tensor x, Tensor bias, str gate) -> (Tensor dx, Tensor dbias)";
  template <class Device>
  static Signature compute;
  static Signature differentiate, batch;
};

// dx = ddx·dy·g''(x + bias)
struct GateDoubleBackward
    : Operator<GateDoubleBackward, Tensor(const Tensor&, const Tensor&, const Tensor&,
                                          const OptionalTensor&, std::string_view)> {
  static constexpr const char* schema =
      "gate_double_backward(Tensor ddx, Tensor dy, Tensor x, Tensor? bias, str gate) -> Tensor dx";
  static constexpr bool is_pointwise = true;
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

inline constexpr GateForward gate_forward;
inline constexpr GateBackward gate_backward;
inline constexpr GateBackwardBias gate_backward_bias;
inline constexpr GateDoubleBackward gate_double_backward;

// The public operators.
C10_EXPORT Tensor fused_gelu(const Tensor& x, std::string_view approximate);
C10_EXPORT Tensor fused_bias_gelu(const Tensor& x, const Tensor& bias,
                                  std::string_view approximate);
C10_EXPORT Tensor fused_gate(const Tensor& x, const OptionalTensor& bias, std::string_view gate);

// Checks all arguments of a core operator; the tensors of the shape of x have names. Returns the
// gate.
C10_EXPORT Gate check_gate(const char* op, const Tensor& x, const OptionalTensor& bias,
                           std::string_view gate, at::ArrayRef<Argument> like_x = {});

}  // namespace gelu_kernels
