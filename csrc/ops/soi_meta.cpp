// Shapes and strides of the results of the SOI map, without data.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> soi_forward_meta(const Tensor& x, const std::optional<Tensor>& bias,
                                            const Tensor& seed, std::string_view gate,
                                            int64_t offset, int64_t row_length,
                                            int64_t row_stride) {
  check_soi_forward(x, bias, seed, gate, {offset, row_length, row_stride});
  return {at::empty_like(x), at::empty_symint({mask_bytes(x)}, x.options().dtype(at::kByte))};
}

Tensor soi_backward_meta(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward", dy, mask, /*has_bias=*/false);
  return at::empty_like(dy);
}

std::tuple<Tensor, Tensor> soi_backward_bias_meta(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward_bias", dy, mask, /*has_bias=*/true);
  return {at::empty_like(dy), at::empty_symint({dy.sym_size(-1)}, dy.options())};
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, Meta, m) {
  m.impl("soi_forward", soi_forward_meta);
  m.impl("soi_backward", soi_backward_meta);
  m.impl("soi_backward_bias", soi_backward_bias_meta);
}

}  // namespace gelu_kernels
