// The random words of octets, and of elements that are worked on one by one; see GlobalIndex.
#pragma once

#include <limits>

#include "csrc/cuda/octet.h"
#include "csrc/random/philox.h"

namespace gelu_kernels::cuda {

// Whether octets have words of whole groups.
inline bool from_a_group(const GlobalIndex& index) {
  return index.row_length == 0 && index.offset % 4 == 0;
}

inline WideDivisor row_length_of(const GlobalIndex& index) {
  const int64_t length = index.row_length ? index.row_length : std::numeric_limits<int64_t>::max();
  return WideDivisor(static_cast<uint64_t>(length));
}

// The mask's byte for an octet of elements from a group on, each of which is kept if its word is
// not below the threshold.
__device__ __forceinline__ uint32_t byte_of_octet(const GlobalIndex& index, uint32_t threshold,
                                                  uint32_t octet, uint64_t seed) {
  const uint64_t group = index.offset / 4 + octet * uint64_t{2};
  uint32_t byte = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const RandomWords random = philox(group + half, seed);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (random.word[i] >= threshold) byte |= 1 << (4 * half + i);
    }
  }
  return byte;
}

// From an element on, one after the other in row-major order.
class ElementWords {
 public:
  __device__ __forceinline__ ElementWords(int64_t element, const GlobalIndex& index,
                                          const WideDivisor& row_length, uint64_t seed)
      : whole_(element, row_length), index_(index), seed_(seed) {}
  __device__ __forceinline__ uint32_t next(const WideDivisor& row_length) {
    const uint64_t at = index_.offset + whole_.row * index_.row_stride + whole_.column;
    if (is_first_ || at % 4 == 0 || whole_.column == 0) random_ = philox(at / 4, seed_);
    is_first_ = false;
    whole_.advance(row_length);
    const uint32_t low = at % 2 ? random_.word[1] : random_.word[0];
    const uint32_t high = at % 2 ? random_.word[3] : random_.word[2];
    return at / 2 % 2 ? high : low;
  }

 private:
  Cursor whole_;
  const GlobalIndex& index_;
  uint64_t seed_;
  RandomWords random_;
  bool is_first_ = true;
};

}  // namespace gelu_kernels::cuda
