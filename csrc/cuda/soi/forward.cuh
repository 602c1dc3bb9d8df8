// The SOI map and its mask.
#pragma once

#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/random_words.h"
#include "csrc/cuda/soi/share.h"
#include "csrc/gates/cdf.h"
#include "csrc/random/bernoulli.h"

namespace gelu_kernels::cuda {

// In each half all bits are the sign of a number: `low` has the low half.
__device__ __forceinline__ uint32_t signs_of(float low, float high) {
  uint32_t signs;  // __byte_perm() knows no signs
  asm("prmt.b32 %0, %1, %2, 0xffbb;" : "=r"(signs) : "r"(bits(low)), "r"(bits(high)));
  return signs;
}

// What lies along the columns beside x.
struct Alone {};
struct WithBias {};
struct WithParameters {};

// The words of a part of an octet's random bits that have the halves of a vector's elements.
template <class Precision>
__device__ __forceinline__ void choose(uint32_t (&words)[Vector<Precision>::size / 2],
                                       const RandomWords& of_octet, const Share<Precision>& share) {
  constexpr int size = Vector<Precision>::size / 2;
#pragma unroll
  for (int k = 0; k < size; ++k) {
    words[k] = of_octet.word[k];
#pragma unroll
    for (int p = 1; p < Share<Precision>::lanes; ++p) {
      if (share.part == p) words[k] = of_octet.word[p * size + k];
    }
  }
}

// The number that F is taken of, for each element; with a bias, x becomes the sum.
template <class Precision, class Beside, int size>
__device__ __forceinline__ void score(float (&z)[size], Vector<Precision>& x,
                                      const SoiForwardOperands& m, const Octets& octets,
                                      const Share<Precision>& share) {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  Real numbers[size];
  x.unpack(numbers);
  if constexpr (std::is_same_v<Beside, WithBias>) {
    Real bias[size];
    V::load(share.in({const_cast<char*>(m.bias), 0, 0}, octets)).unpack(bias);
#pragma unroll
    for (int j = 0; j < size; j += kPacked<Real>) {
      unpack(pack(numbers + j) + pack(bias + j), numbers + j);
    }
    x = V::round(numbers);
  }
  if constexpr (std::is_same_v<Beside, WithParameters>) {
    Real loc[size], scale[size];
    V::load(share.along(m.loc, octets)).unpack(loc);
    V::load(share.along(m.scale, octets)).unpack(scale);
#pragma unroll
    for (int j = 0; j < size; j += kPacked<Real>) {
      const Packed<Real> distance = pack(numbers + j) - pack(loc + j);
      unpack(standard_score(distance, inverse_of(bounded(pack(scale + j)))), numbers + j);
    }
  }
#pragma unroll
  for (int j = 0; j < size; ++j) z[j] = static_cast<float>(numbers[j]);
}

// y in place of x, and the bits of the mask.
//
// Half of an element's random bits decide wherever an estimate of 2^32 F is farther from them than
// they and its error leave open. Else, for two elements of 2^16 or so, all bits decide, exactly.
template <class Gate, class Precision, class Beside>
__device__ __forceinline__ uint32_t draw(Vector<Precision>& x, const SoiForwardOperands& m,
                                         const Octets& octets, const Share<Precision>& share,
                                         uint64_t seed) {
  using V = Vector<Precision>;
  constexpr float open = 0x1p16f + 0x1p32f * Gate::estimate_error;
  constexpr int kWords = V::size / 2;
  float z[V::size], excess[V::size];  // of the random bits over 2^32 F
  score<Precision, Beside>(z, x, m, octets, share);
  const uint64_t octet = static_cast<uint64_t>(m.index.offset) / kOctet + share.octet;
  uint32_t words[kWords];
  choose(words, philox(octet, 0, seed), share);
  float least = 0x1p32f;
#pragma unroll
  for (int j = 0; j < V::size; j += kPacked<float>) {
    float random[kPacked<float>];
#pragma unroll
    for (int k = 0; k < kPacked<float>; ++k) {
      // Below an odd element's half, that of its neighbour stands for the bits left open.
      const uint32_t word = words[(j + k) / 2];
      random[k] = static_cast<float>((j + k) % 2 ? word : word << 16);
    }
    const auto distribution = Gate::distribution_estimate(pack(z + j));
    unpack(fma(distribution, Packed<float>(-0x1p32f), pack(random)), excess + j);
#pragma unroll
    for (int k = 0; k < kPacked<float>; ++k) least = at_most(least, absolute(excess[j + k]));
  }
  if (!(least >= open)) {  // or NaN
    uint32_t others[kWords];
    choose(others, philox(octet, 1, seed), share);
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      if (absolute(excess[j]) >= open) continue;
      excess[j] = bernoulli<Gate>(z[j], word_of(words[j / 2], others[j / 2], j)) ? -1 : 1;
    }
  }

  uint32_t mask = 0, kept[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if constexpr (V::size == 8) {
      kept[k] = signs_of(excess[2 * k], excess[2 * k + 1]);
      mask |= kept[k] & (0x20001u << (2 * k));
    } else {
      const int j = k * V::size / 4;
      kept[k] = static_cast<uint32_t>(static_cast<int32_t>(bits(excess[j])) >> 31);
      mask |= kept[k] & (1u << j);
    }
  }
  x.words = {x.words.x & kept[0], x.words.y & kept[1], x.words.z & kept[2], x.words.w & kept[3]};
  return V::size == 8 ? mask | mask >> 16 : mask;
}

// Any octet, element by element.
template <class Gate, class Precision, bool kParameters>
__device__ __forceinline__ void forward_elements(const SoiForwardOperands& m, const Octets& octets,
                                                 const WideDivisor& row_length, int64_t octet) {
  using T = StorageOf<Precision>;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
  ElementWords words(begin, m.index, row_length, *m.seed);
  uint32_t mask = 0;
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    T x = *reinterpret_cast<const T*>(tile_at(m.x, here.row, here.column).data);
    auto number = Storage<Precision>::load(x);
    if constexpr (kParameters) {
      const auto load = [&here](const Matrix& from) {
        return Storage<Precision>::load(
            *reinterpret_cast<const T*>(tile_at(from, 0, here.column).data));
      };
      number = standard_score(number - load(m.loc), inverse_of(bounded(load(m.scale))));
    } else if (m.bias) {
      number += Storage<Precision>::load(reinterpret_cast<const T*>(m.bias)[here.column]);
      x = Storage<Precision>::store(number);
    }
    const bool kept = bernoulli<Gate>(static_cast<float>(number), words.next(row_length));
    *reinterpret_cast<T*>(tile_at(m.y, here.row, here.column).data) = kept ? x : T(0);
    mask |= kept ? 1 << i : 0;
    here.advance(octets.columns);
  }
  m.mask[octet] = static_cast<uint8_t>(mask);
}

template <class Gate, class Precision, class Beside>
__global__ void __launch_bounds__(kThreads, kSoiBlocksPerProcessor)
    draw_vectors(const __grid_constant__ SoiForwardOperands m,
                 const __grid_constant__ Octets octets,
                 const __grid_constant__ WideDivisor row_length) {
  using V = Vector<Precision>;
  using Here = Share<Precision>;
  constexpr bool kParameters = std::is_same_v<Beside, WithParameters>;
  wait_for_primary();  // it may draw the seed
  const uint32_t begin = blockIdx.x * Here::octets, end = begin + Here::octets;
  if (end > octets.in_vectors) {
#pragma unroll 1
    for (uint32_t octet = begin + threadIdx.x; octet < end; octet += kThreads) {
      if (octet < octets.count()) {
        forward_elements<Gate, Precision, kParameters>(m, octets, row_length, octet);
      }
    }
    return;
  }
  V x[kSoiVectors];
#pragma unroll
  for (int i = 0; i < kSoiVectors; ++i) x[i] = V::load(Here(i).in(m.x, octets));
  const uint64_t seed = *m.seed;
#pragma unroll
  for (int i = 0; i < kSoiVectors; ++i) {
    const Here here(i);
    uint32_t mask = draw<Gate, Precision, Beside>(x[i], m, octets, here, seed);
    x[i].store(here.in(m.y, octets));
    mask <<= here.part * V::size;
#pragma unroll
    for (int lane = 1; lane < Here::lanes; lane *= 2) {
      mask |= __shfl_xor_sync(0xffffffff, mask, lane);
    }
    if (here.part == 0) m.mask[here.octet] = static_cast<uint8_t>(mask);
  }
}

template <class Gate, class Precision, bool kParameters>
__global__ void __launch_bounds__(kThreads)
    draw_elements(const __grid_constant__ SoiForwardOperands m,
                  const __grid_constant__ Octets octets,
                  const __grid_constant__ WideDivisor row_length) {
  wait_for_primary();
  const int64_t octet = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (octet < octets.count()) {
    forward_elements<Gate, Precision, kParameters>(m, octets, row_length, octet);
  }
}

using ForwardKernel = void (*)(SoiForwardOperands, Octets, WideDivisor);

// Starts the one of the two kernels that the operands are for.
template <class Precision, class Kernels>
Error launch_forward(Queue queue, const SoiForwardOperands& m, ForwardKernel of_vectors,
                     ForwardKernel of_elements, bool columns_have_vectors) {
  constexpr int64_t size = sizeof(StorageOf<Precision>);
  const Octets octets =
      octets_of(m.rows, m.columns,
                are_octets_of_whole(m.index) && columns_have_vectors &&
                    has_vectors(m.y, m.rows, size) && has_vectors(m.x, m.rows, size));
  const int64_t block = kOctet * (octets.in_vectors ? Share<Precision>::octets : kThreads);
  return launch_dependent<Kernels>(queue, octets.in_vectors ? of_vectors : of_elements,
                                   (octets.elements + block - 1) / block, kThreads, m, octets,
                                   row_length_of(m.index));
}

}  // namespace gelu_kernels::cuda
