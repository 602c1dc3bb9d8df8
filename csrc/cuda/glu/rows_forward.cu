// y = g(min(x, limit))·(clamp(up, -limit, limit) + up_offset)·weight
#include "csrc/cuda/glu/rows.cuh"

namespace gelu_kernels::cuda {

Error (*glu_rows_forward(Gate gate, Dtype dtype))(Queue, const GluRows&) {
  return find<GluRowsOf<GluRowsForward>::template Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
