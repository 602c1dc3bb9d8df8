// The operators of the gated linear unit: their schemas, the public ones in terms of the core ones,
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

at::Tensor glu_packed_forward(const at::Tensor& x, std::string_view gate) {
  static const auto op = find_op<decltype(glu_packed_forward)>("gelu_kernels::glu_packed_forward");
  return op.call(x, gate);
}

at::Tensor glu_packed_backward(const at::Tensor& dy, const at::Tensor& x, std::string_view gate) {
  static const auto op =
      find_op<decltype(glu_packed_backward)>("gelu_kernels::glu_packed_backward");
  return op.call(dy, x, gate);
}

at::Tensor fused_geglu(const at::Tensor& gate, const at::Tensor& up, std::string_view approximate) {
  const char* op = "fused_geglu";
  check_input(op, gate, "gate");
  const at::Tensor same_dtype = cast_under_autocast(up, gate);
  check_like(op, {"up", same_dtype}, {"gate", gate});
  return glu_forward(gate, same_dtype, gate_for(op, approximate));
}

at::Tensor fused_gelu_and_mul(const at::Tensor& x, std::string_view approximate) {
  const char* op = "fused_gelu_and_mul";
  check_halves(op, x);
  const std::string_view gate = gate_for(op, approximate);
  if (x.layout() == at::kJagged) {  // it knows no operator that changes the last dimension
    const auto halves = x.chunk(2, -1);
    return glu_forward(halves[0], halves[1], gate);
  }
  return glu_packed_forward(x, gate);
}

TORCH_LIBRARY_FRAGMENT(gelu_kernels, m) {
  m.def("fused_geglu(Tensor gate, Tensor up, *, str approximate=\"none\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("fused_gelu_and_mul(Tensor x, *, str approximate=\"none\") -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def("glu_forward(Tensor x, Tensor up, str gate) -> Tensor",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def("glu_backward(Tensor dy, Tensor x, Tensor up, str gate) -> (Tensor dx, Tensor dup)",
        {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  m.def("glu_packed_forward(Tensor x, str gate) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("glu_packed_backward(Tensor dy, Tensor x, str gate) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) {
  m.impl("fused_geglu", fused_geglu);
  m.impl("fused_gelu_and_mul", fused_gelu_and_mul);
}

}  // namespace gelu_kernels
