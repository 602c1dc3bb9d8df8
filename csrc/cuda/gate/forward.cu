// y = g(x + bias)
#include "csrc/cuda/map.cuh"

namespace gelu_kernels::cuda {

// Where no bias makes x any float, bfloat16 values come from the special function unit.
template <class Gate, class Precision>
using PlainForward =
    Forward<Gate, std::conditional_t<std::is_same_v<Precision, bf16>, fast_bf16, Precision>>;

Map forward(Gate gate, Dtype dtype, bool biased) {
  return find_map<Forward, PlainForward>(gate, dtype, biased);
}

}  // namespace gelu_kernels::cuda
