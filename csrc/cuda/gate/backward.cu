// dx = dy·g'(x + bias)
#include "csrc/cuda/map.cuh"

namespace gelu_kernels::cuda {

Map backward(Gate gate, Dtype dtype, bool biased) {
  return find_map<Backward>(gate, dtype, biased);
}

}  // namespace gelu_kernels::cuda
