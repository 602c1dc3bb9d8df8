// The operators of the gated linear unit g(x)·up. x and up are two tensors, or the halves of one:
// the first and the second half of its last dimension.
#pragma once

#include "csrc/ops/gate/gate.h"

namespace gelu_kernels {

// y = g(x)·up
struct GluForward : Operator<GluForward, Tensor(const Tensor&, const Tensor&, std::string_view)> {
  static constexpr const char* schema = "glu_forward(Tensor x, Tensor up, str gate) -> Tensor y";
  static constexpr bool is_pointwise = true;
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

// dx = dy·up·g'(x) and dup = dy·g(x)
struct GluBackward
    : Operator<GluBackward, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                       std::string_view)> {
  static constexpr const char* schema =
      "glu_backward(Tensor dy, Tensor x, Tensor up, str gate) -> (Tensor dx, Tensor dup)";
  static constexpr bool is_pointwise = true;
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

// The same for the halves of x; dx has its shape.
struct GluHalvesForward : Operator<GluHalvesForward, Tensor(const Tensor&, std::string_view)> {
  static constexpr const char* schema = "glu_halves_forward(Tensor x, str gate) -> Tensor y";
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};
struct GluHalvesBackward
    : Operator<GluHalvesBackward, Tensor(const Tensor&, const Tensor&, std::string_view)> {
  static constexpr const char* schema =
      "glu_halves_backward(Tensor dy, Tensor x, str gate) -> Tensor dx";
  template <class Device>
  static Signature compute;
  static Signature differentiate;
};

inline constexpr GluForward glu_forward;
inline constexpr GluBackward glu_backward;
inline constexpr GluHalvesForward glu_halves_forward;
inline constexpr GluHalvesBackward glu_halves_backward;

// The public operator; without up, of the halves of x.
C10_EXPORT Tensor fused_glu(const Tensor& x, const OptionalTensor& up, std::string_view gate);

// Checks all arguments of a core operator on x and up. Returns the gate.
C10_EXPORT Gate check_glu(const char* op, const Tensor& x, const Tensor& up, std::string_view gate,
                          const OptionalTensor& dy = std::nullopt);

// Views of a tensor that has halves.
struct Halves {
  explicit Halves(const Tensor& whole);
  Tensor x, up;
};
// Checks all arguments of a core operator on the halves of x; dy is like one of them. Returns the
// gate.
C10_EXPORT Gate check_glu_halves(const char* op, const Tensor& x, std::string_view gate,
                                 const OptionalTensor& dy = std::nullopt);

}  // namespace gelu_kernels
