// The random words of octets, and of elements that are worked on one by one; see GlobalIndex.
#pragma once

#include <limits>

#include "csrc/cuda/octet.h"
#include "csrc/random/philox.h"

namespace gelu_kernels::cuda {

// Whether a thread's octets are octets of the whole.
inline bool are_octets_of_whole(const GlobalIndex& index) {
  return index.row_length == 0 && index.offset % kOctet == 0;
}

inline WideDivisor row_length_of(const GlobalIndex& index) {
  const int64_t length = index.row_length ? index.row_length : std::numeric_limits<int64_t>::max();
  return WideDivisor(static_cast<uint64_t>(length));
}

// The mask's byte for an octet of elements. An element is kept if its word is not below the
// threshold. The first halves of the words decide, unless one equals the threshold's.
__device__ __forceinline__ uint32_t byte_of_octet(const GlobalIndex& index, uint32_t threshold,
                                                  uint32_t octet, uint64_t seed) {
  const uint64_t of_whole = static_cast<uint64_t>(index.offset) / kOctet + octet;
  const RandomWords first = philox(of_whole, 0, seed);
  const uint32_t half = threshold >> 16;
  uint32_t byte = 0;
  bool is_tie = false;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t own = half_of(first.word[i / 2], i);
    if (own > half) byte |= 1 << i;
    is_tie |= own == half;
  }
  if (is_tie) {
    const RandomWords second = philox(of_whole, 1, seed);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      if (word_of(first.word[i / 2], second.word[i / 2], i) >= threshold) byte |= 1 << i;
    }
  }
  return byte;
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
