// An octet's mask in registers, two elements in a word: the signs of its halves, the bits 15 and
// 31, are 1 for elements that are kept. The other bits are anything.
#pragma once

#include "csrc/cuda/octet.h"

namespace gelu_kernels::cuda {

struct KeptSigns {
  uint32_t words[kOctet / 2];

  static __device__ __forceinline__ KeptSigns of(uint32_t byte) {
    KeptSigns kept;
#pragma unroll
    for (int k = 0; k < kOctet / 2; ++k) {
      kept.words[k] = byte * ((1u << (15 - 2 * k)) + (1u << (30 - 2 * k)));
    }
    return kept;
  }

  __device__ __forceinline__ uint32_t byte() const {
    uint32_t byte = 0;
#pragma unroll
    for (int k = 0; k < kOctet / 2; ++k) byte |= halves(k) & (0x20001u << (2 * k));
    return (byte + (byte >> 16)) & 0xff;
  }

  // +0 in place of the elements of an octet that are not kept.
  template <class Precision>
  __device__ __forceinline__ void select(Octet<Precision>& x) const {
    if constexpr (is_half<Precision>) {
      uint4& pairs = x.vectors[0].words;
      pairs = {pairs.x & halves(0), pairs.y & halves(1), pairs.z & halves(2), pairs.w & halves(3)};
    } else {
      using V = Vector<Precision>;
#pragma unroll
      for (int i = 0; i < Octet<Precision>::count; ++i) {
        bool kept[V::size];
#pragma unroll
        for (int j = 0; j < V::size; ++j) {
          const int element = i * V::size + j;
          kept[j] = words[element / 2] & (element % 2 ? 0x80000000 : 0x8000);
        }
        x.vectors[i] = x.vectors[i].select(kept);
      }
    }
  }

 private:
  // In each half all bits are its sign.
  __device__ __forceinline__ uint32_t halves(int k) const {
    uint32_t signs;  // __byte_perm() knows no signs
    asm("prmt.b32 %0, %1, %1, 0xbb99;" : "=r"(signs) : "r"(words[k]));
    return signs;
  }
};

}  // namespace gelu_kernels::cuda
