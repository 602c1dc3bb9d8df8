// The operators of the gated linear unit: their schemas, the public one in terms of the core ones,
// and the core ones as C++ functions.
#include <torch/library.h>

#include "csrc/ops/find_op.h"
#include "csrc/ops/glu_ops.h"

namespace gelu_kernels {

at::Tensor glu_forward(const at::Tensor& x, const at::Tensor& up, std::string_view gate) {
  static const auto op = find_op<decltype(glu_forward)>("gelu_kernels::glu_forward");
  return op.call(x, up, gate);
}

std::tuple<at::Tensor, at::Tensor> glu_backward(const at::Tensor& dy, const at::Tensor& x,
                                                const at::Tensor& up, std::string_view gate) {
  static const auto op = find_op<decltype(glu_backward)>("gelu_kernels::glu_backward");
  return op.call(dy, x, up, gate);
}

at::Tensor glu_halves_forward(const at::Tensor& x, std::string_view gate) {
  static const auto op = find_op<decltype(glu_halves_forward)>("gelu_kernels::glu_halves_forward");
  return op.call(x, gate);
}

at::Tensor glu_halves_backward(const at::Tensor& dy, const at::Tensor& x, std::string_view gate) {
  static const auto op =
      find_op<decltype(glu_halves_backward)>("gelu_kernels::glu_halves_backward");
  return op.call(dy, x, gate);
}

at::Tensor fused_glu(const at::Tensor& x, const std::optional<at::Tensor>& up,
                     std::string_view gate) {
  const char* op = "fused_glu";
  gate_named(op, gate);
  if (up) {
    check_input(op, x);
    const at::Tensor same_dtype = cast_under_autocast(*up, x);
    check_like(op, {"up", same_dtype}, {"x", x});
    return glu_forward(x, same_dtype, gate);
  }
  check_halves(op, x);
  if (x.layout() == at::kJagged) {  // it knows no operator that changes the last dimension
    const auto halves = x.chunk(2, -1);
    return glu_forward(halves[0], halves[1], gate);
  }
  return glu_halves_forward(x, gate);
}

TORCH_LIBRARY_FRAGMENT(gelu_kernels, m) {
  m.def("fused_glu(Tensor x, Tensor? up=None, *, str gate=\"normal\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("glu_forward(Tensor x, Tensor up, str gate) -> Tensor y",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def("glu_backward(Tensor dy, Tensor x, Tensor up, str gate) -> (Tensor dx, Tensor dup)",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def("glu_halves_forward(Tensor x, str gate) -> Tensor y", {at::Tag::pt2_compliant_tag});
  m.def("glu_halves_backward(Tensor dy, Tensor x, str gate) -> Tensor dx",
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) { m.impl("fused_glu", fused_glu); }

// Without it vmap would call a public operator for each element of a batch.
TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatchedDecomposition, m) { m.impl("fused_glu", fused_glu); }

}  // namespace gelu_kernels
