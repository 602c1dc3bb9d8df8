// float16 loops run over chunks that F16C converts to float and back: g++ 12 does not vectorise
// casts from or to _Float16, and the integer code of storage.h is slower than most gates. g++ keeps
// the chunks in registers.
//
// The sources that include this are compiled once for each instruction set: all of it has internal
// linkage.
#pragma once

#include <cstdint>
#include <type_traits>

#include "csrc/gates/storage.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace gelu_kernels {

#ifdef __F16C__

// A chunk of float16 numbers held as floats. Storing then rounds to nearest, ties to even.
namespace {
struct widened_fp16 {};
}  // namespace
template <>
struct Storage<widened_fp16> {
  using type = float;
  static GELU_KERNELS_HD float load(float x) { return x; }
  static GELU_KERNELS_HD float store(float x) { return x; }
  // An odd float is on the same side of any tie as the even one below it, and is none. The
  // neighbour of -0 and of infinity is NaN.
  static GELU_KERNELS_HD float store_value(float x) {
    const float up = odd_neighbour(x);
    return up > x ? up : x;
  }
};

namespace cpu {
namespace {

#ifdef __AVX512F__
// Without a mask g++ 12 warns of the intrinsics' own variables.
constexpr __mmask16 kAll = 0xffff;
#endif

GELU_KERNELS_HD void widen(float* to, const uint16_t* from, int64_t n) {
#ifdef __AVX512F__
  for (int64_t i = 0; i < n; i += 16) {
    const auto* half = reinterpret_cast<const __m256i*>(from + i);
    _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(half)));
  }
#else
  for (int64_t i = 0; i < n; i += 8) {
    const auto* half = reinterpret_cast<const __m128i*>(from + i);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(half)));
  }
#endif
}

GELU_KERNELS_HD void narrow(uint16_t* to, const float* from, int64_t n) {
  constexpr int to_nearest = _MM_FROUND_TO_NEAREST_INT;
#ifdef __AVX512F__
  for (int64_t i = 0; i < n; i += 16) {
    auto* half = reinterpret_cast<__m256i*>(to + i);
    _mm256_storeu_si256(half, _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(from + i), to_nearest));
  }
#else
  for (int64_t i = 0; i < n; i += 8) {
    auto* half = reinterpret_cast<__m128i*>(to + i);
    _mm_storeu_si128(half, _mm256_cvtps_ph(_mm256_loadu_ps(from + i), to_nearest));
  }
#endif
}

// A chunk of a loop's operand: in place, or converted to floats for float16.
template <int64_t n, class T>
struct Chunk {
  explicit Chunk(T* lies_at) : data(lies_at) {}
  GELU_KERNELS_HD void finish() {}
  T* data;
};
template <int64_t n>
struct Chunk<n, const uint16_t> {
  explicit GELU_KERNELS_HD Chunk(const uint16_t* from) { widen(data, from, n); }
  GELU_KERNELS_HD void finish() {}
  float data[n];
};
template <int64_t n>
struct Chunk<n, uint16_t> {
  explicit GELU_KERNELS_HD Chunk(uint16_t* lies_at) : to(lies_at) {}
  GELU_KERNELS_HD void finish() { narrow(to, data, n); }
  uint16_t* to;
  float data[n];
};

}  // namespace
}  // namespace cpu

#endif

namespace cpu {
namespace {

// A function of its own, where g++ can tell that operands do not overlap: inlined, the bfloat16
// loops took up to 15 % longer with AVX2.
template <int64_t chunk, class Precision, class Loop, class... T>
__attribute__((noinline)) void whole(Precision stored, int64_t n, const Loop& loop,
                                     T* __restrict... operands) {
  loop(stored, n & ~(chunk - 1), operands...);
}

// Runs loop(stored, n, operands...) in one piece or in chunks; n is a multiple of the chunk size.
// The loop reads and writes through Storage<decltype(stored)>. It only reads const operands and
// only writes the others, except sums.
template <class Precision, int64_t chunk, class Loop, class... T>
GELU_KERNELS_HD void in_chunks(int64_t n, const Loop& loop, T*... operands) {
#ifdef __F16C__
  if constexpr (std::is_same_v<Precision, fp16>) {
    n &= ~(chunk - 1);
    for (int64_t i = 0; i < n; i += chunk) {
      [&](auto... chunks) __attribute__((always_inline)) {
        loop(widened_fp16(), chunk, chunks.data...);
        (chunks.finish(), ...);
      }(Chunk<chunk, T>(operands + i)...);
    }
    return;
  }
#endif
  whole<chunk>(Precision(), n, loop, operands...);
}

}  // namespace
}  // namespace cpu
}  // namespace gelu_kernels
