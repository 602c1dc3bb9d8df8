// torch.vmap without its slow fallback.
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

// The arguments of a pointwise operator: tensors of one shape, x last among them, then perhaps a
// bias. The operators take one bias for all examples; where each has its own, it is added to x.
class PointwiseBatch {
 public:
  void add(const at::Tensor& t) { like_x_.push_back(t); }
  void add(const std::optional<at::Tensor>& bias) { bias_ = bias; }
  template <class Other>
  void add(const Other&) {}

  // Before the key of vmap is excluded.
  void fold_bias() {
    const int64_t bias_level = bias_ ? level_of(*bias_) : -1;
    level_ = bias_level;
    for (const at::Tensor& t : like_x_) level_ = std::max(level_, level_of(t));
    if (bias_ && bias_level == level_) {
      like_x_.back() = like_x_.back() + *bias_;
      bias_ = std::nullopt;
    }
  }

  // And after it: the tensors get the batch in front.
  void move_to_front() {
    std::optional<c10::SymInt> size;
    for (at::Tensor& t : like_x_) {
      const auto* impl = level_of(t) == level_ ? at::functorch::maybeGetBatchedImpl(t) : nullptr;
      t = impl ? impl->value().movedim(impl->bdim(), 0) : t.unsqueeze(0);
      if (impl) size = t.sym_size(0);
    }
    for (at::Tensor& t : like_x_) {
      c10::SymDimVector sizes(t.sym_sizes());
      sizes[0] = *size;
      t = t.expand_symint(sizes);
    }
  }

  // The arguments in the order in which they were added.
  at::Tensor next(const at::Tensor&) { return like_x_[next_++]; }
  std::optional<at::Tensor> next(const std::optional<at::Tensor>&) { return bias_; }
  template <class Other>
  Other next(const Other& other) {
    return other;
  }

  // One result or several, as an example sees them.
  at::Tensor batched(const at::Tensor& t) const { return at::functorch::makeBatched(t, 0, level_); }
  template <class... Tensors>
  std::tuple<Tensors...> batched(const std::tuple<Tensors...>& results) const {
    return std::apply([&](const auto&... t) { return std::tuple(batched(t)...); }, results);
  }

 private:
  std::vector<at::Tensor> like_x_;
  std::optional<at::Tensor> bias_;
  int64_t level_ = -1;
  size_t next_ = 0;
};

// The same where the optional tensor is a weight for each row: it gets the batch in front too.
class RowBatch : public PointwiseBatch {
 public:
  using PointwiseBatch::add, PointwiseBatch::next;

  void add(const std::optional<at::Tensor>& weight) {
    if (weight) add(*weight);
  }
  std::optional<at::Tensor> next(const std::optional<at::Tensor>& weight) {
    return weight ? std::optional<at::Tensor>(next(*weight)) : weight;
  }
};

// For an operator that has no batching rule.
class NoBatch : public PointwiseBatch {};

}  // namespace gelu_kernels
