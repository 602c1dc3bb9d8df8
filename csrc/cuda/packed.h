// The elements that a formula is evaluated for at a time: two neighbours where a GPU has
// instructions for both, else one.
#pragma once

#include <cstring>
#include <type_traits>

#include "csrc/gates/float_pair.h"

namespace gelu_kernels::cuda {

#if GELU_KERNELS_HAS_PAIRS
template <class Real>
using Packed = std::conditional_t<std::is_same_v<Real, float>, float_pair, Real>;
#else
template <class Real>
using Packed = Real;
#endif

template <class Real>
constexpr int kPacked = sizeof(Packed<Real>) / sizeof(Real);

template <class Real>
__device__ __forceinline__ Packed<Real> pack(const Real* from) {
  Packed<Real> x;
  memcpy(&x, from, sizeof x);
  return x;
}
// The results of a formula, as many as the elements that it had.
template <class Result, class T>
__device__ __forceinline__ void unpack(Result x, T* to) {
  memcpy(to, &x, sizeof x);
}

}  // namespace gelu_kernels::cuda
