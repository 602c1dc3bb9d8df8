// The CUDA kernels of the core operators: tensors for the launchers of csrc/cuda.
#include "csrc/ops/cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <limits>

#include "csrc/cuda/tuning.h"
#include "csrc/gates/column_sums.h"
#include "csrc/ops/gate_ops.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

void check_launch(const char* op, cuda::Error error) {
  TORCH_CHECK(!error, "gelu_kernels::", op, ": CUDA could not start the kernel: ", error);
}

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_aligned(const char* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) %
             cuda::kVectorBytes ==
         0;
}

// So many consecutive elements, as rows of a segment each; the operands are still to be filled in.
cuda::Rows segments_of(int64_t elements, int64_t size) {
  const int64_t columns = cuda::kSegmentBytes / size;
  const int64_t rows = (elements + columns - 1) / columns;
  cuda::Rows m = {};
  m.rows = static_cast<int32_t>(rows);
  m.columns = static_cast<int32_t>(columns);
  m.last_columns = static_cast<int32_t>(elements - (rows - 1) * columns);
  return m;
}

// The iteration as rows of vectors, if it is that.
std::optional<cuda::Rows> rows_of(const at::TensorIterator& iterator, bool biased) {
  const int64_t size = static_cast<int64_t>(iterator.element_size(0));
  const int bias = biased ? iterator.ntensors() - 1 : -1;
  const bool matrix = iterator.ndim() == 2;
  if (!matrix && (biased || iterator.ndim() != 1)) return std::nullopt;
  const int64_t columns = iterator.shape()[0], rows = matrix ? iterator.shape()[1] : 1;
  if (matrix && columns * size < cuda::kLeastRowBytes) return std::nullopt;
  cuda::Rows m = segments_of(columns, size);
  if (matrix) {
    m.rows = static_cast<int32_t>(rows);
    m.columns = m.last_columns = static_cast<int32_t>(columns);
  }
  int64_t largest = std::max(rows, matrix ? columns : 1);
  for (int k = 0; k < iterator.ntensors(); ++k) {
    const int64_t stride = iterator.strides(k)[0];
    const int64_t row_stride = matrix ? iterator.strides(k)[1] : stride * m.columns;
    largest = std::max(largest, row_stride);
    m.data[k] = static_cast<char*>(iterator.data_ptr(k));
    m.row_stride[k] = static_cast<int32_t>(row_stride);
    if (stride != size || !is_aligned(m.data[k], row_stride)) return std::nullopt;
    if (k == bias && row_stride != 0) return std::nullopt;
  }
  if (largest > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return m;
}

// The iteration's offsets must be under 2^31.
cuda::Strided strided(const at::TensorIterator& iterator) {
  TORCH_CHECK(iterator.ndim() <= cuda::kMaxDims, "gelu_kernels: x must have at most ",
              cuda::kMaxDims, " dimensions that do not merge, got ", iterator.ndim());
  cuda::Strided m = {};
  m.dims = iterator.ndim();
  for (int d = 0; d < m.dims; ++d) m.sizes[d] = static_cast<uint32_t>(iterator.shape()[d]);
  for (int k = 0; k < iterator.ntensors(); ++k) {
    m.data[k] = static_cast<char*>(iterator.data_ptr(k));
    for (int d = 0; d < m.dims; ++d) {
      m.strides[k][d] = static_cast<uint32_t>(iterator.strides(k)[d]);
    }
  }
  return m;
}

// Runs a kernel over the elements of `out` and of the inputs, which broadcast to it; the last is
// the bias if there is one. Tensors that lie in memory alike are one long row.
template <class... Inputs>
void map(const char* op, cuda::Map kernel, bool biased, const Tensor& out,
         const Inputs&... inputs) {
  if (out.numel() == 0) return;
  const auto queue = queue_of(out);
  const c10::DeviceGuard guard(out.device());
  if (!biased && lie_alike(out, inputs...) && is_aligned(data_of(out), 0) &&
      (is_aligned(data_of(inputs), 0) && ...)) {
    cuda::Rows m = segments_of(out.numel(), static_cast<int64_t>(out.element_size()));
    int k = 0;
    for (char* data : {data_of(out), data_of(inputs)...}) {
      m.data[k] = data;
      m.row_stride[k++] = cuda::kSegmentBytes;
    }
    return check_launch(op, kernel.rows(queue, m));
  }
  const at::TensorIterator iterator = iterator_over(out, inputs...);
  if (const auto m = rows_of(iterator, biased)) return check_launch(op, kernel.rows(queue, *m));
  for (const at::TensorIterator& part : iterator.with_32bit_indexing()) {
    check_launch(op, kernel.strided(queue, strided(part)));
  }
}

Tensor gate_forward_cuda(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const char* op = "gate_forward";
  const auto kernel =
      cuda::forward(check_arguments(op, x, bias, gate), dtype_of(x), bias.has_value());
  Tensor y = at::empty_like(x);
  if (bias) {
    map(op, kernel, true, y, x, *bias);
  } else {
    map(op, kernel, false, y, x);
  }
  return y;
}

Tensor gate_backward_cuda(const Tensor& dy, const Tensor& x, const OptionalTensor& bias,
                          std::string_view gate) {
  const char* op = "gate_backward";
  const auto kernel = cuda::backward(check_arguments(op, x, bias, gate, {{"dy", dy}}), dtype_of(x),
                                     bias.has_value());
  Tensor dx = at::empty_like(x);
  if (bias) {
    map(op, kernel, true, dx, dy, x, *bias);
  } else {
    map(op, kernel, false, dx, dy, x);
  }
  return dx;
}

Tensor gate_double_backward_cuda(const Tensor& ddx, const Tensor& dy, const Tensor& x,
                                 const OptionalTensor& bias, std::string_view gate) {
  const char* op = "gate_double_backward";
  const auto kernel =
      cuda::double_backward(check_arguments(op, x, bias, gate, {{"ddx", ddx}, {"dy", dy}}),
                            dtype_of(x), bias.has_value());
  Tensor dx = at::empty_like(x);
  if (bias) {
    map(op, kernel, true, dx, ddx, dy, x, *bias);
  } else {
    map(op, kernel, false, dx, ddx, dy, x);
  }
  return dx;
}

std::tuple<Tensor, Tensor> gate_backward_bias_cuda(const Tensor& dy, const Tensor& x,
                                                   const Tensor& bias, std::string_view gate) {
  const char* op = "gate_backward_bias";
  const auto kernel =
      cuda::backward_column_sums(check_arguments(op, x, bias, gate, {{"dy", dy}}), dtype_of(x));
  const c10::DeviceGuard guard(x.device());
  Tensor dx = at::empty_like(x);
  Tensor dbias = at::empty_like(bias, at::MemoryFormat::Contiguous);
  const int64_t columns = bias.numel();
  if (x.numel() == 0) {
    dbias.zero_();
    return {dx, dbias};
  }
  cuda::ColumnSums m = {};
  m.rows = x.numel() / columns;
  m.columns = columns;
  const auto dx_rows = matrix_layout(dx, m.rows, columns);
  const auto dy_rows = matrix_layout(dy, m.rows, columns);
  const auto x_rows = matrix_layout(x, m.rows, columns);
  if (!dx_rows || !dy_rows || !x_rows) {
    auto [contiguous_dx, sums] =
        gate_backward_bias_cuda(dy.contiguous(), x.contiguous(), bias, gate);
    return {dx.copy_(contiguous_dx), sums};
  }
  m.dx = *dx_rows;
  m.dy = *dy_rows;
  m.x = *x_rows;
  const Tensor packed_bias = bias.contiguous();
  const auto sum_dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor partial =
      at::empty({RowBlocks(m.rows).count, columns}, x.options().dtype(sum_dtype));
  m.bias = data_of(packed_bias);
  m.partial = data_of(partial);
  m.dbias = data_of(dbias);
  check_launch(op, kernel(queue_of(x), m));
  return {dx, dbias};
}

}  // namespace

void register_cuda_kernels(torch::Library& library) {
  library.impl("gate_forward", gate_forward_cuda);
  library.impl("gate_backward", gate_backward_cuda);
  library.impl("gate_backward_bias", gate_backward_bias_cuda);
  library.impl("gate_double_backward", gate_double_backward_cuda);
  register_soi_cuda_kernels(library);
}

}  // namespace gelu_kernels
