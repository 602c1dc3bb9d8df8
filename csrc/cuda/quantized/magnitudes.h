// The largest magnitudes of vectors, in words: two of 16 bits, or one float. In between, a word has
// signs that mean nothing.
#pragma once

#include "csrc/cuda/vector.h"
#include "csrc/gates/float8.h"

namespace gelu_kernels::cuda {

constexpr unsigned kAllLanes = 0xffffffff;

// What stands for a bias that is missing: -0 changes no sum.
template <class Precision>
__device__ __forceinline__ Vector<Precision> no_bias() {
  constexpr uint32_t zeros = is_half<Precision> ? 0x80008000 : 0x80000000;
  return {{zeros, zeros, zeros, zeros}};
}

template <class Precision>
struct Magnitudes {
  using V = Vector<Precision>;
  static constexpr int per_word = is_half<Precision> ? 2 : 1;
  static constexpr uint32_t kept = is_half<Precision> ? 0x7fff7fff : 0x7fffffff;

  // NaN is the largest of all.
  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    uint32_t word;
#if __CUDA_ARCH__ >= 900
    if constexpr (is_half<Precision>) {
      asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    } else {
      asm("max.NaN.xorsign.abs.f32 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    }
#else
    if constexpr (is_half<Precision>) {
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a & kept), "r"(b & kept));
    } else {
      word = max(a & kept, b & kept);
    }
#endif
    return word;
  }

  // The bits of a float.
  static __device__ __forceinline__ uint32_t bits_of(uint32_t word, int k) {
    if constexpr (is_half<Precision>) return (k == 0 ? word << 16 : word) & 0x7fff0000;
    return word & kept;
  }

  static __device__ __forceinline__ uint32_t largest_of(uint32_t word) {
    return per_word == 1 ? bits_of(word, 0) : max(bits_of(word, 0), bits_of(word, 1));
  }

  // Of the words of a vector, to be joined.
  static __device__ __forceinline__ uint32_t of_row(const V& v) {
    return larger(larger(v.words.x, v.words.y), larger(v.words.z, v.words.w));
  }

  // Joins the words of `rows` rows. A word of `of` holds magnitudes of one row; a joined word holds
  // the largest magnitude of each of per_word rows.
  template <int rows>
  static __device__ __forceinline__ void join(const uint32_t (&of)[rows],
                                              uint32_t (&words)[rows / per_word]) {
#pragma unroll
    for (int i = 0; i < rows / per_word; ++i) {
      if constexpr (is_half<Precision>) {
        words[i] = larger(__byte_perm(of[2 * i], of[2 * i + 1], 0x5410),
                          __byte_perm(of[2 * i], of[2 * i + 1], 0x7632));
      } else {
        words[i] = of[i];
      }
    }
  }

  // The largest over `count` lanes, `stride` apart, of each of `count` words. Each lane gets one
  // word, whose index is the lane's position among them.
  template <int stride, int count>
  static __device__ __forceinline__ uint32_t over_lanes(uint32_t (&words)[count], int lane) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2) {
      const bool is_upper = lane & (half * stride);
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const uint32_t own = is_upper ? words[i + half] : words[i];
        const uint32_t other = is_upper ? words[i] : words[i + half];
        words[i] = larger(own, __shfl_xor_sync(kAllLanes, other, half * stride));
      }
    }
    return words[0];
  }

  // The bits of a float, the largest in the words of a warp.
  static __device__ __forceinline__ uint32_t over_warp(uint32_t word) {
    return __reduce_max_sync(kAllLanes, largest_of(word));
  }
};

}  // namespace gelu_kernels::cuda
