// torch.vmap without its slow fallback: the operators run on the whole batch at once.
#include <ATen/TensorOperators.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "csrc/ops/gate_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The nesting level of the vmap that `t` is batched by; -1 if none.
int64_t level_of(const Tensor& t) {
  const auto* batched = at::functorch::maybeGetBatchedImpl(t);
  return batched ? batched->level() : -1;
}

// Runs a pointwise operator on tensors of the shape of x, x itself last, with the batch in front. A
// bias that is one for each example is added to x, since the operators take one for all.
template <class Op>
Tensor pointwise(std::vector<Tensor> like_x, OptionalTensor bias, Op op) {
  int64_t level = bias ? level_of(*bias) : -1;
  const int64_t bias_level = level;
  for (const Tensor& t : like_x) level = std::max(level, level_of(t));
  if (bias && bias_level == level) {
    like_x.back() = like_x.back() + *bias;
    bias = std::nullopt;
  }
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  std::optional<c10::SymInt> batch;
  for (Tensor& t : like_x) {
    const auto* batched = level_of(t) == level ? at::functorch::maybeGetBatchedImpl(t) : nullptr;
    t = batched ? batched->value().movedim(batched->bdim(), 0) : t.unsqueeze(0);
    if (batched) batch = t.sym_size(0);
  }
  for (Tensor& t : like_x) {
    c10::SymDimVector sizes(t.sym_sizes());
    sizes[0] = *batch;
    t = t.expand_symint(sizes);
  }
  return at::functorch::makeBatched(op(like_x, bias), 0, level);
}

Tensor gate_forward_vmap(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  return pointwise({x}, bias,
                   [&](const auto& t, const auto& b) { return gate_forward(t[0], b, gate); });
}

Tensor gate_backward_vmap(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                          std::string_view gate) {
  return pointwise({dy, x}, bias, [&](const auto& t, const auto& b) {
    return gate_backward(t[0], t[1], b, gate);
  });
}

Tensor gate_double_backward_vmap(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, std::string_view gate) {
  return pointwise({ddx, dy, x}, bias, [&](const auto& t, const auto& b) {
    return gate_double_backward(t[0], t[1], t[2], b, gate);
  });
}

std::tuple<Tensor, Tensor> gate_backward_bias_vmap(const Tensor& dy, const Tensor& x,
                                                   const Tensor& bias, std::string_view gate) {
  Tensor dx = gate_backward(dy, x, bias, gate);
  Tensor dbias = sum_to_bias(dx);
  return {std::move(dx), std::move(dbias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatched, m) {
  m.impl("gate_forward", gate_forward_vmap);
  m.impl("gate_backward", gate_backward_vmap);
  m.impl("gate_double_backward", gate_double_backward_vmap);
  m.impl("gate_backward_bias", gate_backward_bias_vmap);
}

}  // namespace gelu_kernels
