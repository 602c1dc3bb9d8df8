// The CPU kernels of the SOI map: tensors and threads for the loops of csrc/cpu/soi_loops.h.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "csrc/cpu/soi_loops.h"
#include "csrc/ops/column_sums.h"
#include "csrc/ops/layout.h"
#include "csrc/ops/output.h"
#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The elements in row-major order, if that takes no copy: one row, or the last dimension as rows.
std::optional<cpu::Elements> elements_of(const Tensor& t) {
  const int64_t size = static_cast<int64_t>(t.element_size());
  if (t.is_contiguous()) return cpu::Elements{{data_of(t), size, 0}, t.numel()};
  const int64_t columns = t.size(-1);
  const auto matrix = matrix_layout(t, t.numel() / columns, columns);
  if (!matrix) return std::nullopt;
  return cpu::Elements{*matrix, columns};
}

// Runs loop(begin, end) over so many elements, cut where bytes of the mask are.
template <class Loop>
void for_elements(int64_t n, Loop loop) {
  const int64_t blocks = (n + cpu::kMaskBlock - 1) / cpu::kMaskBlock;
  constexpr int64_t grain = at::internal::GRAIN_SIZE / cpu::kMaskBlock;
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    loop(begin * cpu::kMaskBlock, std::min(end * cpu::kMaskBlock, n));
  });
}

std::tuple<Tensor, Tensor> soi_forward_cpu(const Tensor& x, const OptionalTensor& bias,
                                           const Tensor& seed, std::string_view gate,
                                           int64_t offset, int64_t row_length, int64_t row_stride) {
  const GlobalIndex index{offset, row_length, row_stride};
  const Gate id = check_soi_forward(x, bias, seed, gate, index);
  const int64_t n = x.numel();
  Tensor y = uninitialized_like(x);
  if (n == 0) return {y, at::empty({0}, x.options().dtype(at::kByte))};
  const auto y_elements = elements_of(y), x_elements = elements_of(x);
  if (!y_elements || !x_elements) {
    auto [contiguous_y, mask] =
        soi_forward_cpu(x.contiguous(), bias, seed, gate, offset, row_length, row_stride);
    return {y.copy_(contiguous_y), mask};
  }
  const Tensor mask = at::empty({(n + 7) / 8}, x.options().dtype(at::kByte));
  auto* mask_data = reinterpret_cast<uint8_t*>(data_of(mask));
  const Tensor packed_bias = bias ? bias->contiguous() : Tensor();
  const int64_t size = static_cast<int64_t>(x.element_size());
  const cpu::Elements bias_elements =
      bias ? cpu::Elements{{data_of(packed_bias), size, 0}, bias->numel()} : cpu::Elements{};
  const auto key = static_cast<uint64_t>(*seed.const_data_ptr<int64_t>());
  const cpu::SoiForward forward = cpu::soi_loops(id, dtype_of(x), n).forward;
  for_elements(n, [&](int64_t begin, int64_t end) {
    forward(*y_elements, mask_data, *x_elements, bias_elements, begin, end, key, index);
  });
  return {y, mask};
}

// The loops of a gradient are those of any gate.
const cpu::SoiLoops& gradient_loops(const Tensor& dy) {
  return cpu::soi_loops(Gate{}, dtype_of(dy), dy.numel());
}

Tensor soi_backward_cpu(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward", dy, mask, /*has_bias=*/false);
  const int64_t n = dy.numel();
  Tensor dx = uninitialized_like(dy);
  if (n == 0) return dx;
  const auto dx_elements = elements_of(dx), dy_elements = elements_of(dy);
  if (!dx_elements || !dy_elements) return dx.copy_(soi_backward_cpu(dy.contiguous(), mask));
  const Tensor packed_mask = mask.contiguous();
  const auto* mask_data = packed_mask.const_data_ptr<uint8_t>();
  const cpu::SoiBackward backward = gradient_loops(dy).backward;
  for_elements(n, [&](int64_t begin, int64_t end) {
    backward(*dx_elements, *dy_elements, mask_data, begin, end);
  });
  return dx;
}

std::tuple<Tensor, Tensor> soi_backward_bias_cpu(const Tensor& dy, const Tensor& mask) {
  check_soi_backward("soi_backward_bias", dy, mask, /*has_bias=*/true);
  const int64_t columns = dy.size(-1);
  Tensor dx = uninitialized_like(dy);
  Tensor dbias = at::empty({columns}, dy.options());
  if (dy.numel() == 0) {
    dbias.zero_();
    return {dx, dbias};
  }
  const int64_t rows = dy.numel() / columns;
  const auto dx_rows = matrix_layout(dx, rows, columns), dy_rows = matrix_layout(dy, rows, columns);
  if (!dx_rows || !dy_rows) {
    auto [contiguous_dx, sums] = soi_backward_bias_cpu(dy.contiguous(), mask);
    return {dx.copy_(contiguous_dx), sums};
  }
  const Tensor packed_mask = mask.contiguous();
  const auto* mask_data = packed_mask.const_data_ptr<uint8_t>();
  const auto sum_tile = gradient_loops(dy).backward_column_sums;
  const auto add = cpu::loops(Gate{}, dtype_of(dy), dy.numel()).add_partial_sums;
  sum_columns(dbias, rows, add,
              [&](int64_t row, int64_t column, void* partial, int64_t width, int64_t height) {
                sum_tile(tile_at(*dx_rows, row, column), tile_at(*dy_rows, row, column), mask_data,
                         row * columns + column, columns, partial, width, height);
              });
  return {dx, dbias};
}

}  // namespace

Tensor soi_thresholds(const Tensor& x, std::string_view gate) {
  const Tensor packed = x.to(at::kFloat).contiguous();
  const Tensor result = at::empty(x.sizes(), x.options().dtype(at::kInt));
  const auto& loops = cpu::soi_loops(gate_named("soi_thresholds", gate), Dtype::float32, x.numel());
  loops.count_in_tail(reinterpret_cast<uint32_t*>(data_of(result)), packed.const_data_ptr<float>(),
                      x.numel());
  return result.to(at::kLong).bitwise_and(0xffffffffll);
}

TORCH_LIBRARY_IMPL(gelu_kernels, CPU, m) {
  m.impl("soi_forward", soi_forward_cpu);
  m.impl("soi_backward", soi_backward_cpu);
  m.impl("soi_backward_bias", soi_backward_bias_cpu);
}

}  // namespace gelu_kernels
