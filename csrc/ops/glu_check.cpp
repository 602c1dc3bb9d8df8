#include <c10/util/Exception.h>
#include <torch/library.h>

#include "csrc/ops/glu_ops.h"

namespace gelu_kernels {

Gate check_glu(const char* op, const at::Tensor& x, const at::Tensor& up, std::string_view gate,
               const std::optional<at::Tensor>& dy) {
  if (!dy) return check_gate(op, x, std::nullopt, gate, {{"up", up}});
  return check_gate(op, x, std::nullopt, gate, {{"dy", *dy}, {"up", up}});
}

void check_halves(const char* op, const at::Tensor& x) {
  check_input(op, x);
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the two halves, got a 0-d tensor");
  TORCH_CHECK_VALUE(x.sym_size(-1) % 2 == 0, "gelu_kernels::", op,
                    ": the last dimension of x must be even, got length ", x.sym_size(-1));
}

Halves halves_of(const char* op, const at::Tensor& x) {
  check_halves(op, x);
  const c10::SymInt half = x.sym_size(-1) / 2;
  return {x.narrow_symint(-1, 0, half), x.narrow_symint(-1, half, half)};
}

CheckedHalves check_glu_halves(const char* op, const at::Tensor& x, std::string_view gate,
                               const std::optional<at::Tensor>& dy) {
  Halves halves = halves_of(op, x);
  if (dy) check_like(op, {"dy", *dy}, {"a half of x", halves.x});
  return {std::move(halves), gate_named(op, gate)};
}

}  // namespace gelu_kernels
