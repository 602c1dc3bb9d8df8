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
  static constexpr int warp_octets = kSoiBackwardVectors * kWarp / lanes;
  static constexpr int octets = warp_octets * kSoiWarps;  // of a block

  uint32_t of_warp, octet;  // from the warp's first one, and from the matrix's
  int part;

  // The thread's vector i.
  explicit __device__ __forceinline__ Share(int i) {
    const uint32_t vector = i * kWarp + threadIdx.x % kWarp;
    of_warp = vector / lanes;
    octet = first_of_warp() + of_warp;
    part = vector % lanes;
  }
  static __device__ __forceinline__ uint32_t first_of_warp() {
    return blockIdx.x * octets + threadIdx.x / kWarp * warp_octets;
  }

  __device__ __forceinline__ StorageOf<Precision>* in(const Matrix& m, const Octets& all) const {
    using T = StorageOf<Precision>;
    return reinterpret_cast<T*>(all.at<T>(m, octet) + part * kVectorBytes);
  }
};

}  // namespace gelu_kernels::cuda
