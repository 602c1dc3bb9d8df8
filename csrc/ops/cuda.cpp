// The CUDA kernels of the core operators: tensors for the launchers of csrc/cuda.
#include "csrc/ops/cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/gates/column_sums.h"
#include "csrc/ops/cuda_map.h"
#include "csrc/ops/gate_ops.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

// As torch reports an error of CUDA.
void fail(const char* op, int device, const cuda::Error& error) {
  std::string what = c10::str("gelu_kernels::", op,
                              ": CUDA could not start the kernel: ", error.name, ": ", error.text);
  if (error.lacks_binary) {
    const auto [name, capability] = cuda::describe(device);
    what += c10::str(". cuda:", device, " is a ", name, " of compute capability ", capability,
                     ", the kernels are those of nvcc " GELU_KERNELS_CUDA
                     ". Build gelu_kernels again with TORCH_CUDA_ARCH_LIST=",
                     capability, ", or if Triton supports it, set GELU_KERNELS_BACKEND=triton.");
  }
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, error.code, what);
}

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor gate_forward_cuda(const Tensor& x, const OptionalTensor& bias, std::string_view gate) {
  const char* op = "gate_forward";
  const auto kernel = cuda::forward(check_gate(op, x, bias, gate), dtype_of(x), bias.has_value());
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
  const auto kernel =
      cuda::backward(check_gate(op, x, bias, gate, {{"dy", dy}}), dtype_of(x), bias.has_value());
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
  const auto kernel = cuda::double_backward(
      check_gate(op, x, bias, gate, {{"ddx", ddx}, {"dy", dy}}), dtype_of(x), bias.has_value());
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
      cuda::backward_column_sums(check_gate(op, x, bias, gate, {{"dy", dy}}), dtype_of(x));
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
  start(op, x, kernel, m);
  return {dx, dbias};
}

}  // namespace

void register_cuda_kernels(torch::Library& library) {
  library.impl("gate_forward", gate_forward_cuda);
  library.impl("gate_backward", gate_backward_cuda);
  library.impl("gate_backward_bias", gate_backward_bias_cuda);
  library.impl("gate_double_backward", gate_double_backward_cuda);
  register_soi_cuda_kernels(library);
  register_glu_cuda_kernels(library);
}

}  // namespace gelu_kernels
