// Its gradients.
#include "csrc/cuda/glu/rows.cuh"

namespace gelu_kernels::cuda {

Error (*glu_rows_backward(Gate gate, Dtype dtype))(Queue, const GluRows&) {
  return find<GluRowsOf<GluRowsBackward>::template Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
