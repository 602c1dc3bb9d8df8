// An element by element function over operands of any strides, one element at a time. Neighbouring
// threads have neighbouring elements, so that rows which are contiguous but misaligned are still
// accessed together.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/tuning.h"
#include "csrc/cuda/vector.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

struct StridedElements {
  Strided m;
  Divisor sizes[kMaxDims];
  uint32_t elements;
};

template <class Function, class Precision, size_t... k>
__device__ __forceinline__ auto apply_to(const StorageOf<Precision>* in,
                                         std::index_sequence<k...>) {
  return apply<Function, Precision>(in[k]...);
}

template <class Function, class Precision>
__global__ void __launch_bounds__(kThreads) map_strided(const __grid_constant__ StridedElements s) {
  using T = StorageOf<Precision>;
  constexpr int inputs = Function::inputs, outputs = Function::outputs;
  const uint32_t first = blockIdx.x * (kThreads * kElements) + threadIdx.x;

  T in[kElements][inputs];
  uint32_t offset[kElements][outputs + inputs] = {};
  const auto address = [&](int k, int i) {
    return reinterpret_cast<T*>(s.m.data[k] + offset[i][k]);
  };
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    uint32_t index = first + i * kThreads;
    if (index >= s.elements) break;
#pragma unroll 1
    for (int d = 0; d < s.m.dims; ++d) {
      const uint32_t quotient = s.sizes[d].divide(index);
      const uint32_t position = index - quotient * s.sizes[d].divisor;
#pragma unroll
      for (int k = 0; k < outputs + inputs; ++k) offset[i][k] += position * s.m.strides[k][d];
      index = quotient;
    }
#pragma unroll
    for (int k = 0; k < inputs; ++k) {
      in[i][k] = *address(outputs + k, i);
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (first + i * kThreads >= s.elements) break;
    const auto result = apply_to<Function, Precision>(in[i], std::make_index_sequence<inputs>());
    if constexpr (outputs == 2) {
      *address(0, i) = result.first;
      *address(1, i) = result.second;
    } else {
      *address(0, i) = result;
    }
  }
}

template <class Kernels, class Function, class Precision>
Error launch_map_strided(Queue queue, const Strided& m) {
  StridedElements s = {m, {}, 1};
  for (int d = 0; d < m.dims; ++d) {
    s.sizes[d] = Divisor(m.sizes[d]);
    s.elements *= m.sizes[d];
  }
  const int64_t block = kThreads * kElements;
  return launch<Kernels>(queue, map_strided<Function, Precision>, (s.elements + block - 1) / block,
                         kThreads, s);
}

}  // namespace gelu_kernels::cuda
