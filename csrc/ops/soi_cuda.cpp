// The CUDA kernels of the SOI map: tensors for the launchers of csrc/cuda.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "csrc/ops/cuda.h"
#include "csrc/ops/layout.h"
#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Two tensors of a shape as matrices, if that takes no copy: one row if they are contiguous, else
// their last dimension as rows.
struct Matrices {
  Matrix out, in;
  int64_t rows, columns;
};
std::optional<Matrices> matrices(const Tensor& out, const Tensor& in, bool by_rows) {
  const bool one_row = !by_rows && out.is_contiguous() && in.is_contiguous();
  const int64_t columns = one_row ? out.numel() : out.size(-1);
  const int64_t rows = out.numel() / columns;
  const auto out_matrix = matrix_layout(out, rows, columns);
  const auto in_matrix = matrix_layout(in, rows, columns);
  if (!out_matrix || !in_matrix) return std::nullopt;
  return Matrices{*out_matrix, *in_matrix, rows, columns};
}

std::tuple<Tensor, Tensor> soi_forward_cuda(const Tensor& x, const OptionalTensor& bias,
                                            const Tensor& seed, std::string_view gate,
                                            int64_t offset, int64_t row_length,
                                            int64_t row_stride) {
  const GlobalIndex index{offset, row_length, row_stride};
  const auto kernel = cuda::soi_forward(check_soi_forward(x, bias, seed, gate, index), dtype_of(x));
  Tensor y = at::empty_like(x);
  const Tensor mask = at::empty({(x.numel() + 7) / 8}, x.options().dtype(at::kByte));
  if (x.numel() == 0) return {y, mask};
  const auto operands = matrices(y, x, bias.has_value());
  if (!operands) {
    auto [contiguous_y, contiguous_mask] =
        soi_forward_cuda(x.contiguous(), bias, seed, gate, offset, row_length, row_stride);
    return {y.copy_(contiguous_y), contiguous_mask};
  }
  const Tensor packed_bias = bias ? bias->contiguous() : Tensor();
  cuda::SoiForward m = {};
  m.y = operands->out;
  m.x = operands->in;
  m.bias = bias ? data_of(packed_bias) : nullptr;
  m.mask = reinterpret_cast<uint8_t*>(data_of(mask));
  m.seed = seed.const_data_ptr<int64_t>();
  m.index = index;
  m.rows = operands->rows;
  m.columns = operands->columns;
  start("soi_forward", x, kernel, m);
  return {y, mask};
}

Tensor soi_backward_cuda(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward", dy, mask, /*has_bias=*/false);
  Tensor dx = at::empty_like(dy);
  if (dy.numel() == 0) return dx;
  const auto operands = matrices(dx, dy, /*by_rows=*/false);
  if (!operands) return dx.copy_(soi_backward_cuda(dy.contiguous(), mask));
  const Tensor packed_mask = mask.contiguous();
  cuda::SoiBackward m = {};
  m.dx = operands->out;
  m.dy = operands->in;
  m.mask = packed_mask.const_data_ptr<uint8_t>();
  m.rows = operands->rows;
  m.columns = operands->columns;
  start("soi_backward", dy, cuda::soi_backward(dtype_of(dy)), m);
  return dx;
}

std::tuple<Tensor, Tensor> soi_backward_bias_cuda(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward_bias", dy, mask, /*has_bias=*/true);
  Tensor dx = at::empty_like(dy);
  Tensor dbias = at::empty({dy.size(-1)}, dy.options());
  if (dy.numel() == 0) {
    dbias.zero_();
    return {dx, dbias};
  }
  const auto operands = matrices(dx, dy, /*by_rows=*/true);
  if (!operands) {
    auto [contiguous_dx, sums] = soi_backward_bias_cuda(dy.contiguous(), mask);
    return {dx.copy_(contiguous_dx), sums};
  }
  const Tensor packed_mask = mask.contiguous();
  const auto sum_dtype = dy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor partial = at::empty({RowBlocks(operands->rows).count, operands->columns},
                                   dy.options().dtype(sum_dtype));
  cuda::ColumnSums m = {};
  m.dx = operands->out;
  m.dy = operands->in;
  m.mask = packed_mask.const_data_ptr<uint8_t>();
  m.partial = data_of(partial);
  m.dbias = data_of(dbias);
  m.rows = operands->rows;
  m.columns = operands->columns;
  start("soi_backward_bias", dy, cuda::soi_backward_column_sums(dtype_of(dy)), m);
  return {dx, dbias};
}

}  // namespace

void register_soi_cuda_kernels(torch::Library& library) {
  library.impl("soi_forward", soi_forward_cuda);
  library.impl("soi_backward", soi_backward_cuda);
  library.impl("soi_backward_bias", soi_backward_bias_cuda);
}

}  // namespace gelu_kernels
