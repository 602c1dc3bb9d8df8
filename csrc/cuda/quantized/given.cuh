// The largest magnitude of a tile whose scale is given.
#pragma once

#include "csrc/cuda/quantized/tile.cuh"

namespace gelu_kernels::cuda {

template <class Precision>
__device__ __forceinline__ void find_amax(const Quantization& q,
                                          const typename QuantizedTile<Precision>::Rounded& y,
                                          const Lane& t) {
  using M = typename QuantizedTile<Precision>::M;
  uint32_t word = 0;
  // With a bias, y is not zero where there is no row.
  t.for_rows([&](int i) { word = M::larger(word, M::of_row(y[i])); });
  const uint32_t largest = M::over_warp(word);
  const auto amax = reinterpret_cast<unsigned*>(q.amax);
  // Most warps find that a larger one was there, which takes no atomic operation.
  if (t.lane == 0 && largest > *amax) atomicMax(amax, largest);
}

}  // namespace gelu_kernels::cuda
