// torch.vmap of an operator that draws a mask: its random bits depend on an element's place in the
// example. The seed of the public operators is drawn inside of vmap, whose `randomness` thus says
// whether examples share it.
#pragma once

#include <ATen/Functions.h>
#include <ATen/functorch/BatchedTensorImpl.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace gelu_kernels {

// The innermost vmap that batches any of the tensors seen so far.
struct Batched {
  int64_t level = -1, size = 0;

  const at::functorch::BatchedTensorImpl* of(const at::Tensor& t) const {
    const auto* batched = at::functorch::maybeGetBatchedImpl(t);
    return batched && batched->level() == level ? batched : nullptr;
  }
  void see(const at::Tensor& t) {
    const auto* batched = at::functorch::maybeGetBatchedImpl(t);
    if (!batched || batched->level() <= level) return;
    level = batched->level();
    size = batched->value().size(batched->bdim());
  }
  // An example's part of t; zeros if the batch is empty.
  at::Tensor example(const at::Tensor& t, int64_t i) const {
    const auto* batched = of(t);
    if (!batched) return t;
    const at::Tensor& value = batched->value();
    if (size > 0) return value.select(batched->bdim(), i);
    c10::SymDimVector sizes(value.sym_sizes());
    sizes.erase(sizes.begin() + batched->bdim());
    return at::zeros_symint(sizes, value.options());
  }
};

// Runs one example after the other, so that each draws the bits it would draw alone:
// forward(example), where example(t) is the example's part of t.
template <class Forward>
std::tuple<at::Tensor, at::Tensor> one_by_one(const Batched& batch, const Forward& forward) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  std::vector<at::Tensor> ys, masks;
  for (int64_t i = 0; i < std::max<int64_t>(batch.size, 1); ++i) {
    auto [y, mask] = forward([&](const at::Tensor& t) { return batch.example(t, i); });
    ys.push_back(std::move(y));
    masks.push_back(std::move(mask));
  }
  const auto stacked = [&](const std::vector<at::Tensor>& results) {
    return at::functorch::makeBatched(at::stack(results).narrow(0, 0, batch.size), 0, batch.level);
  };
  return {stacked(ys), stacked(masks)};
}

}  // namespace gelu_kernels
