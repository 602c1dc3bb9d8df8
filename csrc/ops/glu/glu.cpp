// The public operator of the gated linear unit in terms of the core operators, and the checks of
// these.
#include "csrc/ops/glu/glu.h"

namespace gelu_kernels {

Gate check_glu(const char* op, const Tensor& x, const Tensor& up, std::string_view gate,
               const OptionalTensor& dy) {
  if (!dy) return check_gate(op, x, std::nullopt, gate, {{"up", up}});
  return check_gate(op, x, std::nullopt, gate, {{"dy", *dy}, {"up", up}});
}

Halves::Halves(const Tensor& whole) {
  const c10::SymInt half = whole.sym_size(-1) / 2;
  x = whole.narrow_symint(-1, 0, half);
  up = whole.narrow_symint(-1, half, half);
}

namespace {

void check_has_halves(const char* op, const Tensor& x) {
  check_input(op, x);
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op,
                    ": x must have a last dimension for the two halves, got a 0-d tensor");
  TORCH_CHECK_VALUE(x.sym_size(-1) % 2 == 0, "gelu_kernels::", op,
                    ": the last dimension of x must be even, got length ", x.sym_size(-1));
}

}  // namespace

Gate check_glu_halves(const char* op, const Tensor& x, std::string_view gate,
                      const OptionalTensor& dy) {
  check_has_halves(op, x);
  if (dy) check_like(op, {"dy", *dy}, {"a half of x", Halves(x).x});
  return gate_named(op, gate);
}

Tensor FusedGlu::compose(const Tensor& x, const OptionalTensor& up, std::string_view gate) {
  gate_named(name(), gate);
  if (up) {
    check_input(name(), x);
    const Tensor same_dtype = cast_under_autocast(*up, x);
    check_like(name(), {"up", same_dtype}, {"x", x});
    return glu_forward(x, same_dtype, gate);
  }
  check_has_halves(name(), x);
  if (x.layout() == at::kJagged) {  // it knows no operator that changes the last dimension
    const auto halves = x.chunk(2, -1);
    return glu_forward(halves[0], halves[1], gate);
  }
  return glu_halves_forward(x, gate);
}

}  // namespace gelu_kernels
