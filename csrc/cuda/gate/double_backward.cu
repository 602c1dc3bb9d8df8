// dx = ddx·dy·g''(x + bias)
#include "csrc/cuda/map.cuh"

namespace gelu_kernels::cuda {

Map double_backward(Gate gate, Dtype dtype, bool biased) {
  return find_map<DoubleBackward>(gate, dtype, biased);
}

}  // namespace gelu_kernels::cuda
