// The part of a row that a lane has in the column sums: how it is loaded, stored and converted.
#pragma once

#include "csrc/cuda/vector.h"

namespace gelu_kernels::cuda {

// A vector of consecutive elements, from the lane's first column on.
template <class Precision>
struct Consecutive : Vector<Precision> {
  using typename Vector<Precision>::T;
  static constexpr int spacing = 1;  // from one of the lane's columns to the next

  static __device__ __forceinline__ Consecutive load(const char* first, int64_t, int) {
    return {Vector<Precision>::load(reinterpret_cast<const T*>(first))};
  }
  __device__ __forceinline__ void store(char* first, int64_t, int) const {
    Vector<Precision>::store(reinterpret_cast<T*>(first));
  }
  static __device__ __forceinline__ Consecutive
  round(const typename Precision::Real (&from)[Vector<Precision>::size]) {
    return {Vector<Precision>::round(from)};
  }
};

// The same for any strides: an element of every kWarp, as far as there are columns.
template <class Precision>
struct Spaced {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  static constexpr int size = sizeof(T) == 8 ? kElements / 2 : kElements;
  static constexpr int spacing = kWarp;

  T elements[size];

  static __device__ __forceinline__ Spaced load(const char* first, int64_t stride, int columns) {
    Spaced v = {};
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j * kWarp < columns) {
        v.elements[j] = *reinterpret_cast<const T*>(first + j * kWarp * stride);
      }
    }
    return v;
  }
  __device__ __forceinline__ void store(char* first, int64_t stride, int columns) const {
#pragma unroll
    for (int j = 0; j < size; ++j) {
      if (j * kWarp < columns) *reinterpret_cast<T*>(first + j * kWarp * stride) = elements[j];
    }
  }
  __device__ __forceinline__ void unpack(Real (&to)[size]) const {
#pragma unroll
    for (int j = 0; j < size; ++j) to[j] = Storage<Precision>::load(elements[j]);
  }
  static __device__ __forceinline__ Spaced round(const Real (&from)[size]) {
    Spaced v;
#pragma unroll
    for (int j = 0; j < size; ++j) v.elements[j] = Storage<Precision>::store(from[j]);
    return v;
  }
};

}  // namespace gelu_kernels::cuda
