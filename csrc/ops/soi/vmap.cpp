// torch.vmap of the SOI map. The seed of the public operators is drawn inside of vmap, whose
// `randomness` thus says whether examples share it.
#include <ATen/Functions.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {
namespace {

// The innermost vmap that batches any of the tensors that it has seen.
struct Batched {
  int64_t level = -1, size = 0;

  const at::functorch::BatchedTensorImpl* of(const Tensor& t) const {
    const auto* batched = at::functorch::maybeGetBatchedImpl(t);
    return batched && batched->level() == level ? batched : nullptr;
  }
  void see(const Tensor& t) {
    const auto* batched = at::functorch::maybeGetBatchedImpl(t);
    if (!batched || batched->level() <= level) return;
    level = batched->level();
    size = batched->value().size(batched->bdim());
  }
  // The part of t that belongs to an example; if the batch is empty, zeros.
  Tensor example(const Tensor& t, int64_t i) const {
    const auto* batched = of(t);
    if (!batched) return t;
    const Tensor& value = batched->value();
    if (size > 0) return value.select(batched->bdim(), i);
    c10::SymDimVector sizes(value.sym_sizes());
    sizes.erase(sizes.begin() + batched->bdim());
    return at::zeros_symint(sizes, value.options());
  }
};

// One example after the other: each draws the bits that it would draw alone. forward(example),
// where example(t) is the part of t that belongs to it.
template <class Forward>
std::tuple<Tensor, Tensor> one_by_one(const Batched& batch, const Forward& forward) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  std::vector<Tensor> ys, masks;
  for (int64_t i = 0; i < std::max<int64_t>(batch.size, 1); ++i) {
    auto [y, mask] = forward([&](const Tensor& t) { return batch.example(t, i); });
    ys.push_back(std::move(y));
    masks.push_back(std::move(mask));
  }
  const auto stacked = [&](const std::vector<Tensor>& results) {
    return at::functorch::makeBatched(at::stack(results).narrow(0, 0, batch.size), 0, batch.level);
  };
  return {stacked(ys), stacked(masks)};
}

}  // namespace

std::tuple<Tensor, Tensor> SoiForward::batch(const Tensor& x, const OptionalTensor& bias,
                                             const Tensor& seed, std::string_view gate,
                                             int64_t offset, int64_t row_length,
                                             int64_t row_stride) {
  Batched batch;
  batch.see(x);
  batch.see(seed);
  if (bias) batch.see(*bias);
  return one_by_one(batch, [&](const auto& example) {
    const OptionalTensor own_bias = bias ? OptionalTensor(example(*bias)) : std::nullopt;
    return soi_forward(example(x), own_bias, example(seed), gate, offset, row_length, row_stride);
  });
}

std::tuple<Tensor, Tensor> SoiCdfForward::batch(const Tensor& x, const Tensor& loc,
                                                const Tensor& scale, const Tensor& seed,
                                                std::string_view gate, int64_t offset,
                                                int64_t row_length, int64_t row_stride) {
  Batched batch;
  for (const Tensor& t : {x, loc, scale, seed}) batch.see(t);
  return one_by_one(batch, [&](const auto& example) {
    return soi_cdf_forward(example(x), example(loc), example(scale), example(seed), gate, offset,
                           row_length, row_stride);
  });
}

// By operators that have batching rules of their own.
Tensor SoiBackward::batch(const Tensor& dy, const Tensor& mask) {
  check_soi_backward(name(), dy, mask, /*has_bias=*/false);
  const Tensor bits = at::arange(8, mask.options().dtype(at::kByte));
  const Tensor spread = mask.unsqueeze(-1).bitwise_right_shift(bits).bitwise_and(1).flatten();
  const Tensor m = spread.narrow_symint(0, 0, dy.sym_numel()).view_symint(dy.sym_sizes());
  return at::where(m.to(at::kBool), dy, at::zeros({}, dy.options()));
}

std::tuple<Tensor, Tensor> SoiBackwardBias::batch(const Tensor& dy, const Tensor& mask) {
  return with_bias_sum(soi_backward(dy, mask));
}

}  // namespace gelu_kernels
