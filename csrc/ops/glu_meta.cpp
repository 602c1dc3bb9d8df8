// Shapes and strides of the results of the gated linear unit, without data.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "csrc/ops/glu_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;

Tensor glu_forward_meta(const Tensor& x, const Tensor& up, std::string_view gate) {
  check_glu("glu_forward", x, up, gate);
  return at::empty_like(x);
}

std::tuple<Tensor, Tensor> glu_backward_meta(const Tensor& dy, const Tensor& x, const Tensor& up,
                                             std::string_view gate) {
  check_glu("glu_backward", x, up, gate, dy);
  return {at::empty_like(x), at::empty_like(up)};
}

Tensor glu_halves_forward_meta(const Tensor& x, std::string_view gate) {
  const auto checked = check_glu_halves("glu_halves_forward", x, gate);
  return at::empty_symint(checked.halves.x.sym_sizes(), x.options());
}

Tensor glu_halves_backward_meta(const Tensor& dy, const Tensor& x, std::string_view gate) {
  check_glu_halves("glu_halves_backward", x, gate, dy);
  return at::empty_like(x);
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Meta, m) {
  m.impl("glu_forward", glu_forward_meta);
  m.impl("glu_backward", glu_backward_meta);
  m.impl("glu_halves_forward", glu_halves_forward_meta);
  m.impl("glu_halves_backward", glu_halves_backward_meta);
}

}  // namespace gelu_kernels
