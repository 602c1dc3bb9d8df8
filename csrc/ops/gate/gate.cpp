// The public operators of the gates in terms of the core operators, and the checks of these.
#include "csrc/ops/gate/gate.h"

#include "csrc/ops/jagged.h"

namespace gelu_kernels {

Gate check_gate(const char* op, const Tensor& x, const OptionalTensor& bias, std::string_view gate,
                at::ArrayRef<Argument> like_x) {
  check_input(op, x);
  if (bias) check_bias(op, *bias, x);
  for (const Argument& argument : like_x) check_like(op, argument, {"x", x});
  return gate_named(op, gate);
}

namespace {

Tensor apply_gate(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate) {
  check_input(op, x);
  if (bias && x.layout() == at::kJagged) {
    return map_values(op, x,
                      [&](const Tensor& values) { return apply_gate(op, values, bias, gate); });
  }
  return gate_forward(x, bias_for(op, std::move(bias), x), gate);
}

}  // namespace

Tensor fused_gelu(const Tensor& x, std::string_view approximate) {
  const char* op = "fused_gelu";
  return apply_gate(op, x, std::nullopt, gate_for(op, approximate));
}

Tensor fused_bias_gelu(const Tensor& x, const Tensor& bias, std::string_view approximate) {
  const char* op = "fused_bias_gelu";
  return apply_gate(op, x, bias, gate_for(op, approximate));
}

Tensor fused_gate(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const char* op = "fused_gate";
  gate_named(op, gate);
  return apply_gate(op, x, bias, gate);
}

}  // namespace gelu_kernels
