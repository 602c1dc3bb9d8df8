// The operators of the gated linear unit g(x)·up, and their kernels over a device. x and up are two
// tensors, or the halves of one: the first and the second half of its last dimension, each read and
// written where it lies.
#pragma once

#include "csrc/ops/gate/gate.h"

namespace gelu_kernels {

// Checks all arguments of a core operator on x and up. Returns the gate.
Gate check_glu(const char* op, const Tensor& x, const Tensor& up, std::string_view gate,
               const OptionalTensor& dy = std::nullopt);

// Views of a tensor that has halves.
struct Halves {
  explicit Halves(const Tensor& whole);
  Tensor x, up;
};
// Checks all arguments of a core operator on the halves of x; dy is like one of them. Returns the
// gate.
Gate check_glu_halves(const char* op, const Tensor& x, std::string_view gate,
                      const OptionalTensor& dy = std::nullopt);

// y = g(x)·up
struct GluForward : Operator<GluForward, Tensor(const Tensor&, const Tensor&, std::string_view)> {
  static constexpr const char* schema = "glu_forward(Tensor x, Tensor up, str gate) -> Tensor y";
  static constexpr bool is_pointwise = true;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& x, const Tensor& up, std::string_view gate) {
    const Gate id = check_glu(name(), x, up, gate);
    Tensor y = Device::empty_like(x);
    Device::map(name(), &Device::Passes::glu_forward, id, std::nullopt, y, x, up);
    return y;
  }
};

// dx = dy·up·g'(x) and dup = dy·g(x)
struct GluBackward
    : Operator<GluBackward, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                       std::string_view)> {
  static constexpr const char* schema =
      "glu_backward(Tensor dy, Tensor x, Tensor up, str gate) -> (Tensor dx, Tensor dup)";
  static constexpr bool is_pointwise = true;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& up,
                                            std::string_view gate) {
    const Gate id = check_glu(name(), x, up, gate, dy);
    Tensor dx = Device::empty_like(x);
    Tensor dup = Device::empty_like(up);
    Device::template map<2>(name(), &Device::Passes::glu_backward, id, std::nullopt, dx, dup, dy, x,
                            up);
    return {std::move(dx), std::move(dup)};
  }
};

// The same for the halves of x; dx has its shape.
struct GluHalvesForward : Operator<GluHalvesForward, Tensor(const Tensor&, std::string_view)> {
  static constexpr const char* schema = "glu_halves_forward(Tensor x, str gate) -> Tensor y";
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& x, std::string_view gate) {
    const Gate id = check_glu_halves(name(), x, gate);
    const Halves in(x);
    Tensor y = Device::empty_contiguous(in.x);
    Device::map(name(), &Device::Passes::glu_forward, id, std::nullopt, y, in.x, in.up);
    return y;
  }
};
struct GluHalvesBackward
    : Operator<GluHalvesBackward, Tensor(const Tensor&, const Tensor&, std::string_view)> {
  static constexpr const char* schema =
      "glu_halves_backward(Tensor dy, Tensor x, str gate) -> Tensor dx";
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& x, std::string_view gate) {
    const Gate id = check_glu_halves(name(), x, gate, dy);
    const Halves in(x);
    Tensor dx = Device::empty_like(x);
    const Halves out(dx);
    Device::template map<2>(name(), &Device::Passes::glu_backward, id, std::nullopt, out.x, out.up,
                            dy, in.x, in.up);
    return dx;
  }
};

inline constexpr GluForward glu_forward;
inline constexpr GluBackward glu_backward;
inline constexpr GluHalvesForward glu_halves_forward;
inline constexpr GluHalvesBackward glu_halves_backward;

// y = g(x)·up; without up, of the halves of x
struct FusedGlu : PublicOperator<FusedGlu> {
  static constexpr const char* schema =
      "fused_glu(Tensor x, Tensor? up=None, *, str gate=\"normal\") -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& up,
                                   std::string_view gate);
};

}  // namespace gelu_kernels
