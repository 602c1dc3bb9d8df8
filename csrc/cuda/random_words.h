// The random words of octets, and of elements that are worked on one by one; see GlobalIndex.
#pragma once

#include <limits>

#include "csrc/cuda/kept_signs.h"
#include "csrc/random/philox.h"

namespace gelu_kernels::cuda {

// Whether a thread's octets are octets of the whole.
inline bool are_octets_of_whole(const GlobalIndex& index) {
  return index.row_length == 0 && index.offset % kOctet == 0;
}

// The same, and the upper halves of these octets' numbers are one.
inline bool are_octets_of_whole(const GlobalIndex& index, int64_t elements) {
  const auto upper = [](int64_t element) { return element / kOctet >> 32; };
  return are_octets_of_whole(index) && upper(index.offset) == upper(index.offset + elements);
}

inline WideDivisor row_length_of(const GlobalIndex& index) {
  const int64_t length = index.row_length ? index.row_length : std::numeric_limits<int64_t>::max();
  return WideDivisor(static_cast<uint64_t>(length));
}

// Draws an octet. An element is kept if its word is not below the threshold. The first halves of
// the words decide, unless one equals the threshold's.
//
// Halves are compared two at a time, by a subtraction: a half below its bound borrows. The lower
// half's borrow makes the upper bound one less than the threshold's half, so that at a tie, and
// nowhere far from it, the rest is 0, or in the upper half 1.
__device__ __forceinline__ KeptSigns draw_octet(uint64_t octet, uint32_t threshold, uint64_t seed) {
  const uint32_t half = threshold >> 16, bounds = (max(half, 1) - 1) << 16 | half;
  const RandomWords first = philox(octet, 0, seed);
  KeptSigns kept;
  uint32_t least = 0xffffffff;  // of each half
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint32_t own = first.word[k], rest = own - bounds;
    // Not the borrows; the compiler makes two instructions of the formula in C++.
    asm("lop3.b32 %0, %1, %2, %3, 0x71;" : "=r"(kept.words[k]) : "r"(own), "r"(bounds), "r"(rest));
    least = __vminu2(least, rest);
  }
  if (least < 0x20000 || (least & 0xffff) == 0) {
    const RandomWords second = philox(octet, 1, seed);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const bool low = word_of(first.word[k], second.word[k], 0) >= threshold;
      const bool high = word_of(first.word[k], second.word[k], 1) >= threshold;
      kept.words[k] = (low ? 0x8000 : 0) | (high ? 0x80000000 : 0);
    }
  }
  return kept;
}

// The words from an element on, one after the other in row-major order.
class ElementWords {
 public:
  __device__ __forceinline__ ElementWords(int64_t element, const GlobalIndex& index,
                                          const WideDivisor& row_length, uint64_t seed)
      : whole_(element, row_length), index_(index), seed_(seed) {}
  __device__ __forceinline__ uint32_t next(const WideDivisor& row_length) {
    const uint64_t at = index_.offset + whole_.row * index_.row_stride + whole_.column;
    if (is_first_ || at % kOctet == 0 || whole_.column == 0) {
      first_ = philox(at / kOctet, 0, seed_);
      second_ = philox(at / kOctet, 1, seed_);
    }
    is_first_ = false;
    whole_.advance(row_length);
    const uint32_t first = word(first_, at), second = word(second_, at);
    return at % 2 ? word_of(first, second, 1) : word_of(first, second, 0);
  }

 private:
  // No number decides which register is read.
  static __device__ __forceinline__ uint32_t word(const RandomWords& part, uint64_t at) {
    const uint32_t low = at / 2 % 2 ? part.word[1] : part.word[0];
    const uint32_t high = at / 2 % 2 ? part.word[3] : part.word[2];
    return at / 4 % 2 ? high : low;
  }

  Cursor whole_;
  const GlobalIndex& index_;
  uint64_t seed_;
  RandomWords first_, second_;
  bool is_first_ = true;
};

}  // namespace gelu_kernels::cuda
