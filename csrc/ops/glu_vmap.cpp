// torch.vmap of the gated linear unit. The batch goes in front, so that the halves stay last.
#include <torch/library.h>

#include "csrc/ops/glu_ops.h"
#include "csrc/ops/vmap.h"

namespace gelu_kernels {
namespace {

using at::Tensor;

Tensor glu_forward_vmap(const Tensor& x, const Tensor& up, std::string_view gate) {
  return pointwise({up, x}, std::nullopt,
                   [&](const auto& t, const auto&) { return glu_forward(t[1], t[0], gate); });
}

std::tuple<Tensor, Tensor> glu_backward_vmap(const Tensor& dy, const Tensor& x, const Tensor& up,
                                             std::string_view gate) {
  return pointwise({dy, up, x}, std::nullopt, [&](const auto& t, const auto&) {
    return glu_backward(t[0], t[2], t[1], gate);
  });
}

Tensor glu_halves_forward_vmap(const Tensor& x, std::string_view gate) {
  return pointwise({x}, std::nullopt,
                   [&](const auto& t, const auto&) { return glu_halves_forward(t[0], gate); });
}

Tensor glu_halves_backward_vmap(const Tensor& dy, const Tensor& x, std::string_view gate) {
  return pointwise({dy, x}, std::nullopt, [&](const auto& t, const auto&) {
    return glu_halves_backward(t[0], t[1], gate);
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatched, m) {
  m.impl("glu_forward", glu_forward_vmap);
  m.impl("glu_backward", glu_backward_vmap);
  m.impl("glu_halves_forward", glu_halves_forward_vmap);
  m.impl("glu_halves_backward", glu_halves_backward_vmap);
}

}  // namespace gelu_kernels
