// The CUDA kernels of the gated linear unit: tensors for the launchers of csrc/cuda. A half of a
// tensor is read and written where it lies.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "csrc/ops/cuda_map.h"
#include "csrc/ops/glu_ops.h"

namespace gelu_kernels {
namespace {

using at::Tensor;

Tensor glu_forward_cuda(const Tensor& x, const Tensor& up, std::string_view gate) {
  const char* op = "glu_forward";
  const auto kernel = cuda::glu_forward(check_glu(op, x, up, gate), dtype_of(x));
  Tensor y = at::empty_like(x);
  map(op, kernel, /*biased=*/false, y, x, up);
  return y;
}

std::tuple<Tensor, Tensor> glu_backward_cuda(const Tensor& dy, const Tensor& x, const Tensor& up,
                                             std::string_view gate) {
  const char* op = "glu_backward";
  const auto kernel = cuda::glu_backward(check_glu(op, x, up, gate, dy), dtype_of(x));
  Tensor dx = at::empty_like(x);
  Tensor dup = at::empty_like(up);
  map<2>(op, kernel, /*biased=*/false, dx, dup, dy, x, up);
  return {dx, dup};
}

Tensor glu_halves_forward_cuda(const Tensor& x, std::string_view gate) {
  const char* op = "glu_halves_forward";
  const auto [halves, id] = check_glu_halves(op, x, gate);
  const auto kernel = cuda::glu_forward(id, dtype_of(x));
  Tensor y = at::empty(halves.x.sizes(), x.options());
  map(op, kernel, /*biased=*/false, y, halves.x, halves.up);
  return y;
}

Tensor glu_halves_backward_cuda(const Tensor& dy, const Tensor& x, std::string_view gate) {
  const char* op = "glu_halves_backward";
  const auto [halves, id] = check_glu_halves(op, x, gate, dy);
  const auto kernel = cuda::glu_backward(id, dtype_of(x));
  Tensor dx = at::empty_like(x);
  const Halves gradients = halves_of(op, dx);
  map<2>(op, kernel, /*biased=*/false, gradients.x, gradients.up, dy, halves.x, halves.up);
  return dx;
}

}  // namespace

void register_glu_cuda_kernels(torch::Library& library) {
  library.impl("glu_forward", glu_forward_cuda);
  library.impl("glu_backward", glu_backward_cuda);
  library.impl("glu_halves_forward", glu_halves_forward_cuda);
  library.impl("glu_halves_backward", glu_halves_backward_cuda);
}

}  // namespace gelu_kernels
