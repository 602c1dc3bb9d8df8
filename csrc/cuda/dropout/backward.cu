// dx = m dy k g'(x + bias)
#include "csrc/cuda/dropout/backward.cuh"

namespace gelu_kernels::cuda {

Error (*dropout_backward(Gate gate, Dtype dtype))(Queue, const DropoutBackwardOperands&) {
  return find<DropoutBackwardOf<Backward>::template Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
