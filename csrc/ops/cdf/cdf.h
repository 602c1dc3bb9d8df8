// The operators of a gate with a location and a scale, y = x F((x - loc)/scale), and their kernels
// over a device. loc and scale are each one number, or a vector along the last dimension.
#pragma once

#include "csrc/ops/cdf/kernels.h"
#include "csrc/ops/gate/gate.h"

namespace gelu_kernels {

// Checks all arguments of a core operator. Returns the gate.
Gate check_cdf_gate(const char* op, const Tensor& x, const Tensor& loc, const Tensor& scale,
                    std::string_view gate, at::ArrayRef<Argument> like_x = {});

// loc and scale, cast under autocast and checked.
Parameters parameters_for(const char* op, const Tensor& loc, const Tensor& scale, const Tensor& x);

struct CdfGateForward : Operator<CdfGateForward, Tensor(const Tensor&, const Tensor&, const Tensor&,
                                                        std::string_view)> {
  static constexpr const char* schema =
      "cdf_gate_forward(Tensor x, Tensor loc, Tensor scale, str gate) -> Tensor y";
  static Signature differentiate, batch;

  template <class Device>
  static Tensor compute(const Tensor& x, const Tensor& loc, const Tensor& scale,
                        std::string_view gate) {
    const Gate id = check_cdf_gate(name(), x, loc, scale, gate);
    Tensor y = Device::empty_like(x);
    if constexpr (Device::has_data) map_with_parameters<Device>(name(), id, loc, scale, y, x);
    return y;
  }
};

// The gradients, for a gradient dy of y; dloc and dscale are sums over what loc and scale are
// broadcast to.
struct CdfGateBackward : Operator<CdfGateBackward, std::tuple<Tensor, Tensor, Tensor>(
                                                       const Tensor&, const Tensor&, const Tensor&,
                                                       const Tensor&, std::string_view)> {
  static constexpr const char* schema =
      "cdf_gate_backward(Tensor dy, Tensor x, Tensor loc, Tensor scale, str gate)"
      " -> (Tensor dx, Tensor dloc, Tensor dscale)";
  static Signature differentiate, batch;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor> compute(const Tensor& dy, const Tensor& x,
                                                    const Tensor& loc, const Tensor& scale,
                                                    std::string_view gate) {
    const Gate id = check_cdf_gate(name(), x, loc, scale, gate, {{"dy", dy}});
    Tensor dx = Device::empty_like(x);
    Tensor dloc = Device::empty_contiguous(loc), dscale = Device::empty_contiguous(scale);
    if constexpr (Device::has_data) {
      sum_parameters<Device>(name(), id, {loc, scale}, {dloc, dscale}, dx, dy, x);
    }
    return {std::move(dx), std::move(dloc), std::move(dscale)};
  }
};

inline constexpr CdfGateForward cdf_gate_forward;
inline constexpr CdfGateBackward cdf_gate_backward;

struct CdfGate : PublicOperator<CdfGate> {
  static constexpr const char* schema =
      "cdf_gate(Tensor x, Tensor loc, Tensor scale, *, str gate=\"normal\") -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const Tensor& loc, const Tensor& scale,
                                   std::string_view gate);
};

}  // namespace gelu_kernels
