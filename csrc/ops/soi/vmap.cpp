// torch.vmap of the SOI map. The seed of the public operators is drawn inside of vmap, whose
// `randomness` thus says whether examples share it.
#include <ATen/Functions.h>

#include "csrc/ops/bias_sum.h"
#include "csrc/ops/one_by_one.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {

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

// Composed of operators that have batching rules of their own.
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
