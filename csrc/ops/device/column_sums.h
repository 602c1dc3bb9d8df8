// A bias gradient: dx, and the sums of its columns, on a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/ops/layout.h"

namespace gelu_kernels {

// `sums` says of what, but for the matrices, dx and the inputs: dy and, where there is a bias, x.
template <class Device, class Kernel, class... Inputs>
void sum_columns(const char* op, const Kernel& kernel, ColumnSums sums, const at::Tensor& dbias,
                 const at::Tensor& dx, const Inputs&... in) {
  if (dx.numel() == 0) {
    dbias.zero_();
    return;
  }
  const auto run = [&](int64_t rows, int64_t columns, const auto&... matrices) {
    const auto dtype = dx.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor partial = Device::empty(dx, {RowBlocks(rows).count, columns}, dtype);
    const Matrix operands[3] = {matrices...};
    sums.dx = operands[0];
    sums.dy = operands[1];
    sums.x = operands[2];
    sums.partials[0] = data_of(partial);
    sums.rows = rows;
    sums.columns = columns;
    sums.sums[0] = data_of(dbias);
    Device::sum_columns(op, dx, kernel, sums);
  };
  with_matrices(dbias.numel(), run, dx, in...);
}

}  // namespace gelu_kernels
