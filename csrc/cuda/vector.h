// 16 bytes of consecutive elements, in registers: one load, one store, conversions in pairs.
#pragma once

#include <type_traits>
#include <utility>

#include "csrc/cuda/packed.h"
#include "csrc/cuda/tuning.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels::cuda {

// Two 16-bit elements in a word, rounded to nearest, ties to even.
template <class Precision>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  uint32_t word;
  if constexpr (std::is_same_v<Precision, fp16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

template <class Precision>
struct Vector {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  static constexpr int size = kVectorBytes / sizeof(T);

  uint4 words;

  static __device__ __forceinline__ Vector load(const T* from) {
    return {*reinterpret_cast<const uint4*>(from)};
  }
  __device__ __forceinline__ void store(T* to) const { *reinterpret_cast<uint4*>(to) = words; }

  __device__ __forceinline__ void unpack(Real (&to)[size]) const {
    if constexpr (is_half<Precision>) {
      const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int j = 0; j < size; ++j) {
        to[j] = Storage<Precision>::load(static_cast<uint16_t>(pairs[j / 2] >> (j % 2 * 16)));
      }
    } else {
      memcpy(to, &words, sizeof to);
    }
  }

  static __device__ __forceinline__ Vector round(const Real (&from)[size]) {
    Vector v;
    if constexpr (is_half<Precision>) {
      v.words = {round_pair<Precision>(from[0], from[1]), round_pair<Precision>(from[2], from[3]),
                 round_pair<Precision>(from[4], from[5]), round_pair<Precision>(from[6], from[7])};
    } else {
      memcpy(&v.words, from, sizeof v);
    }
    return v;
  }

  // +0 in place of the elements that are not kept.
  __device__ __forceinline__ Vector select(const bool (&kept)[size]) const {
    Vector v;
    if constexpr (is_half<Precision>) {
      v.words = {select(words.x, kept[0], kept[1]), select(words.y, kept[2], kept[3]),
                 select(words.z, kept[4], kept[5]), select(words.w, kept[6], kept[7])};
    } else {
      T elements[size];
      memcpy(elements, &words, sizeof elements);
#pragma unroll
      for (int j = 0; j < size; ++j) elements[j] = kept[j] ? elements[j] : 0;
      memcpy(&v.words, elements, sizeof elements);
    }
    return v;
  }

  // Rounds the values of a gate for x: in 16 bits to nearest, ties towards +infinity (see Storage).
  // Every value, a zero as well, has the sign of x.
  template <Ties kTies>
  static __device__ __forceinline__ Vector round_values(const Real (&from)[size], const Vector& x) {
    if constexpr (is_half<Precision>) {
      float up[size];
#pragma unroll
      for (int j = 0; j < size; j += kPacked<Real>) {
        cuda::unpack(Storage<Precision>::template break_tie<kTies>(pack(from + j)), up + j);
      }
      Vector v = round(up);
      v.words = {sign_of(x.words.x, v.words.x), sign_of(x.words.y, v.words.y),
                 sign_of(x.words.z, v.words.z), sign_of(x.words.w, v.words.w)};
      return v;
    } else {
      return round(from);
    }
  }

 private:
  static __device__ __forceinline__ uint32_t select(uint32_t pair, bool low, bool high) {
    if (!low) pair &= 0xffff0000;
    if (!high) pair &= 0x0000ffff;
    return pair;
  }
  static __device__ __forceinline__ uint32_t sign_of(uint32_t x, uint32_t magnitude) {
    uint32_t word;  // the compiler makes two instructions of the formula in C++
    asm("lop3.b32 %0, %1, %2, 0x80008000, 0xe4;" : "=r"(word) : "r"(x), "r"(magnitude));
    return word;
  }
};

}  // namespace gelu_kernels::cuda
