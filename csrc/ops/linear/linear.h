// The operators of a linear layer after a gate or a gated linear unit,
//
//   y = linear(g(x + gate_bias), weight, bias)
//
// for which autograd keeps x alone: backward computes g(x + gate_bias), which the gradient of the
// weight needs, once more. The gates are deterministic, so it has the same bits.
#pragma once

#include "csrc/ops/glu/glu.h"

namespace gelu_kernels {

// dweight = dy^T g(x + gate_bias) over all rows; transposed, as the transpose of a contiguous
// matrix. An operator, so that a compiler does not take g(x + gate_bias) from the forward pass.
struct GateLinearBackwardWeight
    : Operator<GateLinearBackwardWeight, Tensor(const Tensor&, const Tensor&, const OptionalTensor&,
                                                std::string_view, bool)> {
  static constexpr const char* schema =
      "gate_linear_backward_weight(Tensor dy, Tensor x, Tensor? gate_bias, str gate, "
      "bool transposed=False) -> Tensor dweight";
  static Signature differentiate, batch, compose;
};

// The same for a gated linear unit; without up, of the halves of x.
struct GluLinearBackwardWeight
    : Operator<GluLinearBackwardWeight,
               Tensor(const Tensor&, const Tensor&, const OptionalTensor&, std::string_view,
                      std::optional<double>, double, bool)> {
  static constexpr const char* schema =
      "glu_linear_backward_weight(Tensor dy, Tensor x, Tensor? up, str gate, float? limit=None, "
      "float up_offset=0., bool transposed=False) -> Tensor dweight";
  static Signature differentiate, batch, compose;
};

inline constexpr GateLinearBackwardWeight gate_linear_backward_weight;
inline constexpr GluLinearBackwardWeight glu_linear_backward_weight;

// Checks that dy has a row for each row of x.
void check_rows(const char* op, const Tensor& dy, const Tensor& x);

// Recorded for autograd; the arguments are checked already.
Tensor gate_linear(const Tensor& x, const OptionalTensor& gate_bias, const Tensor& weight,
                   const OptionalTensor& bias, std::string_view gate);
Tensor glu_linear(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                  const OptionalTensor& bias, std::string_view gate, std::optional<double> limit,
                  double up_offset);

struct GateLinear : PublicOperator<GateLinear> {
  static constexpr const char* schema =
      "gate_linear(Tensor x, Tensor weight, Tensor? bias=None, *, Tensor? gate_bias=None, "
      "str gate=\"normal\") -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const Tensor& weight,
                                   const OptionalTensor& bias, const OptionalTensor& gate_bias,
                                   std::string_view gate);
};

// y = linear(glu(x, up), weight, bias); without up, of the halves of x
struct GluLinear : PublicOperator<GluLinear> {
  static constexpr const char* schema =
      "glu_linear(Tensor x, Tensor? up, Tensor weight, Tensor? bias=None, *, "
      "str gate=\"normal\", float? limit=None, float up_offset=0.) -> Tensor";
  C10_EXPORT static Tensor compose(const Tensor& x, const OptionalTensor& up, const Tensor& weight,
                                   const OptionalTensor& bias, std::string_view gate,
                                   std::optional<double> limit, double up_offset);
};

}  // namespace gelu_kernels
