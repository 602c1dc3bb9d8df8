// Philox4x32-7, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3" (2011): any word of the sequence at once, without a state. Seven
// rounds pass BigCrush there, table 2. What the usual ten would cost was counted before the scheme
// was fixed: 1.9 issue slots of 26.8 for a bfloat16 with a bias on an H100, where 27.6 fit into an
// H200's time for its bytes, and 2 of 21.4 on a B200, where 20.4 fit.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

struct Philox {
  static constexpr int rounds = 7;
  static constexpr uint32_t multiplier_0 = 0xd2511f53, multiplier_2 = 0xcd9e8d57;
  static constexpr uint32_t key_step_0 = 0x9e3779b9, key_step_1 = 0xbb67ae85;
};

struct RandomWords {
  uint32_t word[4];
};

// The product a b, high half first.
struct Product {
  uint32_t high, low;
};
GELU_KERNELS_HD Product product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return {__umulhi(a, b), a * b};
#else
  const uint64_t both = uint64_t{a} * b;
  return {static_cast<uint32_t>(both >> 32), static_cast<uint32_t>(both)};
#endif
}

// The words of the counter (octet, part), each 64 bits, low half first, with the seed for the key.
GELU_KERNELS_HD RandomWords philox(uint64_t octet, uint32_t part, uint64_t seed) {
  uint32_t c0 = static_cast<uint32_t>(octet), c1 = static_cast<uint32_t>(octet >> 32);
  uint32_t c2 = part, c3 = 0;
  uint32_t key_0 = static_cast<uint32_t>(seed), key_1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    const Product product_0 = product(Philox::multiplier_0, c0);
    const Product product_2 = product(Philox::multiplier_2, c2);
    c0 = product_2.high ^ c1 ^ key_0;
    c2 = product_0.high ^ c3 ^ key_1;
    c1 = product_2.low;
    c3 = product_0.low;
    key_0 += Philox::key_step_0;
    key_1 += Philox::key_step_1;
  }
  return {{c0, c1, c2, c3}};
}

// An element has 32 random bits: 16 of the octet's part 0, which come first, and 16 of its part 1.
// Of its two words of these, an even element has the low halves.
GELU_KERNELS_HD uint32_t half_of(uint32_t word, int element) {
  return element % 2 ? word >> 16 : word & 0xffff;
}
GELU_KERNELS_HD uint32_t word_of(uint32_t first, uint32_t second, int element) {
#ifdef __CUDA_ARCH__
  return __byte_perm(second, first, element % 2 ? 0x7632 : 0x5410);
#else
  return half_of(first, element) << 16 | half_of(second, element);
#endif
}

// Which word an element of a tensor draws: word index % 8 of octet index / 8. `index` is the
// element's position in the whole. The tensor may be a part of it: rows of row_length elements,
// row_stride apart, the first at `offset`. A row_length of 0 means that the part is one row.
struct GlobalIndex {
  int64_t offset, row_length, row_stride;

  GELU_KERNELS_HD uint64_t of(int64_t element) const {
    int64_t index = offset + element;
    if (row_length != 0) {
      index = offset + element / row_length * row_stride + element % row_length;
    }
    return static_cast<uint64_t>(index);
  }
};

}  // namespace gelu_kernels
