// dx = m dy k up g'(x) and dup = m dy k g(x)
#include "csrc/cuda/dropout/backward.cuh"

namespace gelu_kernels::cuda {

Error (*glu_dropout_backward(Gate gate, Dtype dtype))(Queue, const DropoutBackwardOperands&) {
  return find<DropoutBackwardOf<GluBackward>::template Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
