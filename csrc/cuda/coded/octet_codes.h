// The codes of an octet, a byte for each in a word of 64 bits, and in memory.
#pragma once

#include "csrc/cuda/octet.h"
#include "csrc/gates/codebook.h"

namespace gelu_kernels::cuda {

__device__ __forceinline__ uint32_t code_of(uint64_t codes, int element) {
  return static_cast<uint32_t>(codes >> (8 * element)) & 0xff;
}

// Without an instruction.
__device__ __forceinline__ uint64_t join_words(uint32_t low, uint32_t high) {
  uint64_t word;
  asm("mov.b64 %0, {%1, %2};" : "=l"(word) : "r"(low), "r"(high));
  return word;
}

// Eight codes, each in the lowest byte of a word, as a byte for each.
__device__ __forceinline__ uint64_t join_codes(const int32_t (&codes)[kOctet]) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low = __byte_perm(codes[4 * i], codes[4 * i + 1], 0x0040);
    const uint32_t high = __byte_perm(codes[4 * i + 2], codes[4 * i + 3], 0x0040);
    words[i] = __byte_perm(low, high, 0x5410);
  }
  return join_words(words[0], words[1]);
}

// Two codes of 4 bits in a byte, whatever the upper bits of their own bytes are.
__device__ __forceinline__ uint32_t pack_pairs(uint64_t codes) {
  constexpr uint64_t low = 0x0f0f0f0f0f0f0f0f;
  const uint64_t pairs = (codes & low) | (codes >> 4 & ~low);
  return __byte_perm(static_cast<uint32_t>(pairs), static_cast<uint32_t>(pairs >> 32), 0x6420);
}
__device__ __forceinline__ uint64_t unpack_pairs(uint32_t packed) {
  const uint32_t even = packed & 0x0f0f0f0f, odd = packed >> 4 & 0x0f0f0f0f;
  return join_words(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
}

// For whole octets; codes in memory begin at a multiple of 8 bytes.
__device__ __forceinline__ void store_codes(uint8_t* code, int64_t octet, uint64_t codes,
                                            int bits) {
  if (bits == 8) {
    *reinterpret_cast<uint64_t*>(code + octet * 8) = codes;
  } else {
    *reinterpret_cast<uint32_t*>(code + octet * 4) = pack_pairs(codes);
  }
}
// The codes of `size` consecutive elements, packed as in memory. `first` is a multiple of `size`.
template <int size>
__device__ __forceinline__ uint64_t load_packed_codes(const uint8_t* code, int64_t first,
                                                      int bits) {
  using Bytes =
      std::conditional_t<size == 8, uint64_t, std::conditional_t<size == 4, uint32_t, uint16_t>>;
  using Pairs =
      std::conditional_t<size == 8, uint32_t, std::conditional_t<size == 4, uint16_t, uint8_t>>;
  if (bits == 8) return *reinterpret_cast<const Bytes*>(code + first);
  return *reinterpret_cast<const Pairs*>(code + first / 2);
}
__device__ __forceinline__ uint64_t unpack_codes(uint64_t packed, int bits) {
  return bits == 8 ? packed : unpack_pairs(static_cast<uint32_t>(packed));
}
template <int size>
__device__ __forceinline__ uint64_t load_codes(const uint8_t* code, int64_t first, int bits) {
  return unpack_codes(load_packed_codes<size>(code, first, bits), bits);
}

// The code of one element, in its byte.
__device__ __forceinline__ uint32_t unpack_code(uint32_t byte, int64_t element, int bits) {
  return bits == 8 ? byte : byte >> (element % 2 * 4) & 15;
}
__device__ __forceinline__ uint32_t load_code(const uint8_t* code, int64_t element, int bits) {
  return unpack_code(code[bits == 8 ? element : element / 2], element, bits);
}

inline bool has_whole_words(const uint8_t* code) {
  return reinterpret_cast<uintptr_t>(code) % 8 == 0;
}

}  // namespace gelu_kernels::cuda
