// A thread's share of the elements of the SOI map: vectors, of whose octets each has a byte of the
// mask.
#pragma once

#include "csrc/cuda/octet.h"

namespace gelu_kernels::cuda {

// A vector of an octet. In 16 bits it is all of it, else the lanes next to each other have its two
// or four vectors: each access of a warp is of consecutive vectors.
template <class Precision>
struct Share {
  static constexpr int lanes = kOctet / Vector<Precision>::size;  // of an octet
  static constexpr int octets = kSoiVectors * kThreads / lanes;   // of a block

  uint32_t octet;
  int part;

  // The thread's vector i.
  explicit __device__ __forceinline__ Share(int i) {
    const uint32_t vector = i * kThreads + threadIdx.x;
    octet = blockIdx.x * octets + vector / lanes;
    part = vector % lanes;
  }

  __device__ __forceinline__ StorageOf<Precision>* in(const Matrix& m, const Octets& all) const {
    using T = StorageOf<Precision>;
    return reinterpret_cast<T*>(all.at<T>(m, octet) + part * kVectorBytes);
  }
};

}  // namespace gelu_kernels::cuda
