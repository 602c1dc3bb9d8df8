// The CPU kernels of the core operators: tensors and threads for the loops of csrc/cpu.
#include <torch/library.h>

#include "csrc/ops/column_sums.h"
#include "csrc/ops/gate_ops.h"
#include "csrc/ops/map.h"
#include "csrc/ops/output.h"

namespace gelu_kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor gate_forward_cpu(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const auto& loops = loops_for(x, check_gate("gate_forward", x, bias, gate));
  Tensor y = uninitialized_like(x);
  if (bias) {
    map(loops.forward_bias, y, x, *bias);
  } else {
    map(loops.forward, y, x);
  }
  return y;
}

Tensor gate_backward_cpu(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                         std::string_view gate) {
  const auto& loops = loops_for(x, check_gate("gate_backward", x, bias, gate, {{"dy", dy}}));
  Tensor dx = uninitialized_like(x);
  if (bias) {
    map(loops.backward_bias, dx, dy, x, *bias);
  } else {
    map(loops.backward, dx, dy, x);
  }
  return dx;
}

Tensor gate_double_backward_cpu(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                const OptionalTensor& bias, std::string_view gate) {
  const auto& loops =
      loops_for(x, check_gate("gate_double_backward", x, bias, gate, {{"ddx", ddx}, {"dy", dy}}));
  Tensor dx = uninitialized_like(x);
  if (bias) {
    map(loops.double_backward_bias, dx, ddx, dy, x, *bias);
  } else {
    map(loops.double_backward, dx, ddx, dy, x);
  }
  return dx;
}

std::tuple<Tensor, Tensor> gate_backward_bias_cpu(const Tensor& dy, const Tensor& x,
                                                  const Tensor& bias, std::string_view gate) {
  const auto& loops = loops_for(x, check_gate("gate_backward_bias", x, bias, gate, {{"dy", dy}}));
  Tensor dx = uninitialized_like(x);
  Tensor dbias = uninitialized_like(bias);
  const int64_t columns = bias.numel();
  if (x.numel() == 0) {
    dbias.zero_();
    return {dx, dbias};
  }
  const int64_t rows = x.numel() / columns;
  auto dx_rows = matrix_layout(dx, rows, columns);
  auto dy_rows = matrix_layout(dy, rows, columns);
  auto x_rows = matrix_layout(x, rows, columns);
  if (!dx_rows || !dy_rows || !x_rows) {
    auto [contiguous_dx, sums] =
        gate_backward_bias_cpu(dy.contiguous(), x.contiguous(), bias, gate);
    return {dx.copy_(contiguous_dx), sums};
  }
  const Tensor packed_bias = bias.contiguous();
  const char* bias_data = data_of(packed_bias);
  const int64_t size = static_cast<int64_t>(x.element_size());
  sum_columns(dbias, rows, loops.add_partial_sums,
              [&](int64_t row, int64_t column, void* partial, int64_t width, int64_t height) {
                loops.backward_column_sums(tile_at(*dx_rows, row, column),
                                           tile_at(*dy_rows, row, column),
                                           tile_at(*x_rows, row, column), bias_data + column * size,
                                           partial, width, height);
              });
  return {dx, dbias};
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, CPU, m) {
  m.impl("gate_forward", gate_forward_cpu);
  m.impl("gate_backward", gate_backward_cpu);
  m.impl("gate_backward_bias", gate_backward_bias_cpu);
  m.impl("gate_double_backward", gate_double_backward_cpu);
}

}  // namespace gelu_kernels
