// The batching rule of pointwise operators: they run on the whole batch at once.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/functorch/BatchedTensorImpl.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace gelu_kernels {

// The nesting level of the vmap that `t` is batched by; -1 if none.
inline int64_t level_of(const at::Tensor& t) {
  const auto* impl = at::functorch::maybeGetBatchedImpl(t);
  return impl ? impl->level() : -1;
}

// A result with the batch in front, or two of them, as an example sees it.
inline at::Tensor batched(const at::Tensor& t, int64_t level) {
  return at::functorch::makeBatched(t, 0, level);
}
inline std::tuple<at::Tensor, at::Tensor> batched(const std::tuple<at::Tensor, at::Tensor>& two,
                                                  int64_t level) {
  return {batched(std::get<0>(two), level), batched(std::get<1>(two), level)};
}

// Runs a pointwise operator on tensors of the shape of x, x itself last, with the batch in front. A
// bias that is one for each example is added to x, since the operators take one for all.
template <class Op>
auto pointwise(std::vector<at::Tensor> like_x, std::optional<at::Tensor> bias, Op op) {
  int64_t level = bias ? level_of(*bias) : -1;
  const int64_t bias_level = level;
  for (const at::Tensor& t : like_x) level = std::max(level, level_of(t));
  if (bias && bias_level == level) {
    like_x.back() = like_x.back() + *bias;
    bias = std::nullopt;
  }
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  std::optional<c10::SymInt> batch;
  for (at::Tensor& t : like_x) {
    const auto* impl = level_of(t) == level ? at::functorch::maybeGetBatchedImpl(t) : nullptr;
    t = impl ? impl->value().movedim(impl->bdim(), 0) : t.unsqueeze(0);
    if (impl) batch = t.sym_size(0);
  }
  for (at::Tensor& t : like_x) {
    c10::SymDimVector sizes(t.sym_sizes());
    sizes[0] = *batch;
    t = t.expand_symint(sizes);
  }
  return batched(op(like_x, bias), level);
}

}  // namespace gelu_kernels
