// The public operators of the gates, composed of core operators, and the core operators' checks.
#include "csrc/ops/gate/gate.h"

#include "csrc/ops/coded/coded.h"
#include "csrc/ops/jagged.h"

namespace gelu_kernels {

Gate check_gate(const char* op, const Tensor& x, const OptionalTensor& bias, std::string_view gate,
                at::ArrayRef<Argument> like_x) {
  check_input(op, x);
  if (bias) check_bias(op, {"bias", *bias}, x);
  for (const Argument& argument : like_x) check_like(op, argument, {"x", x});
  return gate_named(op, gate);
}

namespace {

Tensor apply_gate(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate,
                  std::optional<std::string_view> save, const OptionalTensor& seed) {
  if (save) {
    check_save(op, save, seed.has_value());
    return apply_coded_gate(op, x, std::move(bias), gate, *save, seed, /*p=*/0, seed.has_value());
  }
  TORCH_CHECK_VALUE(!seed, "gelu_kernels::", op, ": seed must be None without save, got a tensor");
  check_input(op, x);
  if (bias && x.layout() == at::kJagged) {
    return map_values(op, x, [&](const Tensor& values) {
      return apply_gate(op, values, bias, gate, save, seed);
    });
  }
  return gate_forward(x, bias_for(op, std::move(bias), x), gate);
}

}  // namespace

Tensor FusedGelu::compose(const Tensor& x, std::string_view approximate,
                          std::optional<std::string_view> save, const OptionalTensor& seed) {
  return apply_gate(name(), x, std::nullopt, gate_for(name(), approximate), save, seed);
}

Tensor FusedBiasGelu::compose(const Tensor& x, const Tensor& bias, std::string_view approximate,
                              std::optional<std::string_view> save, const OptionalTensor& seed) {
  return apply_gate(name(), x, bias, gate_for(name(), approximate), save, seed);
}

Tensor FusedGate::compose(const Tensor& x, const OptionalTensor& bias, std::string_view gate,
                          std::optional<std::string_view> save, const OptionalTensor& seed) {
  return apply_gate(name(), x, bias, gate_name(name(), gate), save, seed);
}

}  // namespace gelu_kernels
