#include "csrc/cuda/map.cuh"

namespace gelu_kernels::cuda {
namespace {

// Where no bias makes x any float, bfloat16 values come from the special function unit.
template <class Precision>
using Unbiased = std::conditional_t<std::is_same_v<Precision, bf16>, fast_bf16, Precision>;

template <class Gate, class Precision>
struct Entry : MapEntry<Forward<Gate, Unbiased<Precision>>, Precision> {};
template <class Gate, class Precision>
struct BiasedEntry : BiasedMapEntry<Forward<Gate, Precision>, Precision> {};

}  // namespace

Map forward(Gate gate, Dtype dtype, bool biased) {
  return biased ? find<BiasedEntry>(gate, dtype) : find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
