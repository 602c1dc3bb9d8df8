#include "csrc/cuda/map.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Gate, class Precision>
struct Entry : MapEntry<Backward<Gate, Precision>, Precision> {};
template <class Gate, class Precision>
struct BiasedEntry : BiasedMapEntry<Backward<Gate, Precision>, Precision> {};

}  // namespace

Map backward(Gate gate, Dtype dtype, bool biased) {
  return biased ? find<BiasedEntry>(gate, dtype) : find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
