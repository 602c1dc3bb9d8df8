// The operators of the gated linear unit, and their kernels over a device:
//
//   y = g(min(x, limit))·(clamp(up, -limit, limit) + up_offset)·weight
//
// weight has a number for each row. Without limit, up_offset and weight, y = g(x)·up has kernels of
// its own. x and up are two tensors, or the halves of one: the first and the second half of its
// last dimension, each read and written where it lies.
#pragma once

#include "csrc/ops/gate/gate.h"
#include "csrc/ops/glu/kernels.h"

namespace gelu_kernels {

// All arguments of a core operator except x, up and dy.
struct GluOptions {
  const OptionalTensor& weight;
  std::string_view gate;
  std::optional<double> limit;
  double up_offset;

  bool is_plain() const { return !weight && !limit && up_offset == 0; }
};

// Checks all arguments of a core operator on x and up. Returns the gate.
Gate check_glu(const char* op, const Tensor& x, const Tensor& up, const GluOptions& options,
               const OptionalTensor& dy = std::nullopt);

// Views of a tensor that has halves.
struct Halves {
  explicit Halves(const Tensor& whole);
  Halves(Tensor x, Tensor up) : x(std::move(x)), up(std::move(up)) {}
  Tensor x, up;
};
// Checks all arguments of a core operator on the halves of x; dy is like one of them. Returns the
// gate.
Gate check_glu_halves(const char* op, const Tensor& x, const GluOptions& options,
                      const OptionalTensor& dy = std::nullopt);

// Writes y, or the gradients of x and up and, if it is given, of the weight.
template <class Device>
void write_glu(const char* op, Gate gate, const GluOptions& options, const Tensor& y,
               const Tensor& x, const Tensor& up) {
  if constexpr (Device::has_data) {
    if (options.is_plain()) {
      return Device::map(op, &Device::Passes::glu_forward, gate, std::nullopt, y, x, up);
    }
    over_rows<Device, 1>(op, gate, options.weight, std::nullopt, options.limit, options.up_offset,
                         y, x, up);
  }
}
template <class Device>
void write_glu_gradients(const char* op, Gate gate, const GluOptions& options,
                         const OptionalTensor& dweight, const Tensor& dx, const Tensor& dup,
                         const Tensor& dy, const Tensor& x, const Tensor& up) {
  if constexpr (Device::has_data) {
    if (options.is_plain()) {
      return Device::template map<2>(op, &Device::Passes::glu_backward, gate, std::nullopt, dx, dup,
                                     dy, x, up);
    }
    over_rows<Device, 2>(op, gate, options.weight, dweight, options.limit, options.up_offset, dx,
                         dup, dy, x, up);
  }
}

struct GluForward : Operator<GluForward, Tensor(const Tensor&, const Tensor&, const OptionalTensor&,
                                                std::string_view, std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_forward(Tensor x, Tensor up, Tensor? weight, str gate, float? limit=None, "
      "float up_offset=0.) -> Tensor y";
  static constexpr bool is_pointwise = true;
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& x, const Tensor& up, const OptionalTensor& weight,
                        std::string_view gate, std::optional<double> limit, double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu(name(), x, up, options);
    Tensor y = Device::empty_like(x);
    write_glu<Device>(name(), id, options, y, x, up);
    return y;
  }
};

// Where an argument of g or of the product is clamped, its gradient is 0:
//   dx = dy·weight·(clamp(up) + up_offset)·g'(min(x, limit))
//   dup = dy·weight·g(min(x, limit))
struct GluBackward
    : Operator<GluBackward, std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                       const OptionalTensor&, std::string_view,
                                                       std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_backward(Tensor dy, Tensor x, Tensor up, Tensor? weight, str gate, float? limit=None, "
      "float up_offset=0.) -> (Tensor dx, Tensor dup)";
  static constexpr bool is_pointwise = true;
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& up,
                                            const OptionalTensor& weight, std::string_view gate,
                                            std::optional<double> limit, double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu(name(), x, up, options, dy);
    Tensor dx = Device::empty_like(x);
    Tensor dup = Device::empty_like(up);
    write_glu_gradients<Device>(name(), id, options, std::nullopt, dx, dup, dy, x, up);
    return {std::move(dx), std::move(dup)};
  }
};

// The same, and dweight, the sum over the row of dy·g(min(x, limit))·(clamp(up) + up_offset).
struct GluBackwardWeight
    : Operator<GluBackwardWeight, std::tuple<Tensor, Tensor, Tensor>(
                                      const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                      std::string_view, std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_backward_weight(Tensor dy, Tensor x, Tensor up, Tensor weight, str gate, "
      "float? limit=None, float up_offset=0.) -> (Tensor dx, Tensor dup, Tensor dweight)";
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor, Tensor> compute(const Tensor& dy, const Tensor& x,
                                                    const Tensor& up, const Tensor& weight,
                                                    std::string_view gate,
                                                    std::optional<double> limit, double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu(name(), x, up, options, dy);
    Tensor dx = Device::empty_like(x);
    Tensor dup = Device::empty_like(up);
    Tensor dweight = Device::empty_like(weight);
    write_glu_gradients<Device>(name(), id, options, dweight, dx, dup, dy, x, up);
    return {std::move(dx), std::move(dup), std::move(dweight)};
  }
};

// The same for the halves of x; dx has its shape.
struct GluHalvesForward
    : Operator<GluHalvesForward, Tensor(const Tensor&, const OptionalTensor&, std::string_view,
                                        std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_halves_forward(Tensor x, Tensor? weight, str gate, float? limit=None, "
      "float up_offset=0.) -> Tensor y";
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& x, const OptionalTensor& weight, std::string_view gate,
                        std::optional<double> limit, double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu_halves(name(), x, options);
    const Halves in(x);
    Tensor y = Device::empty_contiguous(in.x);
    write_glu<Device>(name(), id, options, y, in.x, in.up);
    return y;
  }
};
struct GluHalvesBackward
    : Operator<GluHalvesBackward, Tensor(const Tensor&, const Tensor&, const OptionalTensor&,
                                         std::string_view, std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_halves_backward(Tensor dy, Tensor x, Tensor? weight, str gate, float? limit=None, "
      "float up_offset=0.) -> Tensor dx";
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static Tensor compute(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                        std::string_view gate, std::optional<double> limit, double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu_halves(name(), x, options, dy);
    const Halves in(x);
    Tensor dx = Device::empty_like(x);
    const Halves out(dx);
    write_glu_gradients<Device>(name(), id, options, std::nullopt, out.x, out.up, dy, in.x, in.up);
    return dx;
  }
};
struct GluHalvesBackwardWeight
    : Operator<GluHalvesBackwardWeight,
               std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                          std::string_view, std::optional<double>, double)> {
  static constexpr const char* schema =
      "glu_halves_backward_weight(Tensor dy, Tensor x, Tensor weight, str gate, "
      "float? limit=None, float up_offset=0.) -> (Tensor dx, Tensor dweight)";
  using Batch = RowBatch;
  static Signature differentiate;

  template <class Device>
  static std::tuple<Tensor, Tensor> compute(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                            std::string_view gate, std::optional<double> limit,
                                            double up_offset) {
    const GluOptions options{weight, gate, limit, up_offset};
    const Gate id = check_glu_halves(name(), x, options, dy);
    const Halves in(x);
    Tensor dx = Device::empty_like(x);
    const Halves out(dx);
    Tensor dweight = Device::empty_like(weight);
    write_glu_gradients<Device>(name(), id, options, dweight, out.x, out.up, dy, in.x, in.up);
    return {std::move(dx), std::move(dweight)};
  }
};

inline constexpr GluForward glu_forward;
inline constexpr GluBackward glu_backward;
inline constexpr GluBackwardWeight glu_backward_weight;
inline constexpr GluHalvesForward glu_halves_forward;
inline constexpr GluHalvesBackward glu_halves_backward;
inline constexpr GluHalvesBackwardWeight glu_halves_backward_weight;

// y; without up, of the halves of x
struct FusedGlu : PublicOperator<FusedGlu> {
  static constexpr const char* schema =
      "fused_glu(Tensor x, Tensor? up=None, *, str gate=\"normal\", float? limit=None, "
      "float up_offset=0., Tensor? weight=None) -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& up, std::string_view gate,
                                   std::optional<double> limit, double up_offset,
                                   const OptionalTensor& weight);
};

}  // namespace gelu_kernels
