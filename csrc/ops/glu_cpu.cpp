// The CPU kernels of the gated linear unit: tensors and threads for the loops of csrc/cpu. A half
// of a tensor is read and written where it lies.
#include <torch/library.h>

#include "csrc/ops/glu_ops.h"
#include "csrc/ops/map.h"
#include "csrc/ops/output.h"

namespace gelu_kernels {
namespace {

using at::Tensor;

Tensor glu_forward_cpu(const Tensor& x, const Tensor& up, std::string_view gate) {
  const auto& loops = loops_for(x, check_glu("glu_forward", x, up, gate));
  Tensor y = uninitialized_like(x);
  map(loops.glu_forward, y, x, up);
  return y;
}

std::tuple<Tensor, Tensor> glu_backward_cpu(const Tensor& dy, const Tensor& x, const Tensor& up,
                                            std::string_view gate) {
  const auto& loops = loops_for(x, check_glu("glu_backward", x, up, gate, dy));
  Tensor dx = uninitialized_like(x);
  Tensor dup = uninitialized_like(up);
  map<2>(loops.glu_backward, dx, dup, dy, x, up);
  return {dx, dup};
}

Tensor glu_halves_forward_cpu(const Tensor& x, std::string_view gate) {
  const auto [halves, id] = check_glu_halves("glu_halves_forward", x, gate);
  Tensor y = uninitialized(halves.x.sizes(), x.scalar_type());
  map(loops_for(y, id).glu_forward, y, halves.x, halves.up);
  return y;
}

Tensor glu_halves_backward_cpu(const Tensor& dy, const Tensor& x, std::string_view gate) {
  const char* op = "glu_halves_backward";
  const auto [halves, id] = check_glu_halves(op, x, gate, dy);
  Tensor dx = uninitialized_like(x);
  const Halves gradients = halves_of(op, dx);
  map<2>(loops_for(dy, id).glu_backward, gradients.x, gradients.up, dy, halves.x, halves.up);
  return dx;
}

}  // namespace

TORCH_LIBRARY_IMPL(gelu_kernels, CPU, m) {
  m.impl("glu_forward", glu_forward_cpu);
  m.impl("glu_backward", glu_backward_cpu);
  m.impl("glu_halves_forward", glu_halves_forward_cpu);
  m.impl("glu_halves_backward", glu_halves_backward_cpu);
}

}  // namespace gelu_kernels
