// The SOI map and its mask.
#pragma once

#include <limits>
#include <type_traits>

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

// The words of a part of an octet's random bits that have the halves of a vector's elements.
template <class Precision>
__device__ __forceinline__ void choose(uint32_t (&words)[Vector<Precision>::size / 2],
                                       const RandomWords& of_octet, int part) {
  constexpr int size = Vector<Precision>::size / 2;
#pragma unroll
  for (int k = 0; k < size; ++k) {
    words[k] = of_octet.word[k];
#pragma unroll
    for (int p = 1; p < Share<Precision>::lanes; ++p) {
      if (part == p) words[k] = of_octet.word[p * size + k];
    }
  }
}

// The vectors along the columns: none, a bias, or a location and a scale. score() turns a vector of
// x into the numbers that F takes.
template <class Precision>
struct Alone {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  static constexpr int vectors = soi_vectors(sizeof(typename V::T));
  static constexpr int blocks = soi_blocks_per_processor(sizeof(typename V::T), false);

  __device__ __forceinline__ Alone(const SoiForwardOperands&, uint32_t, int) {}
  __device__ __forceinline__ void score(Real (&)[V::size], V&) const {}
};

template <class Precision>
struct WithBias {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  static constexpr int vectors = soi_vectors(sizeof(typename V::T));
  static constexpr int blocks = soi_blocks_per_processor(sizeof(typename V::T), true);

  Real bias[V::size];

  // For a part of an octet of a row.
  __device__ __forceinline__ WithBias(const SoiForwardOperands& m, uint32_t octet, int part) {
    using T = typename V::T;
    V::load(reinterpret_cast<const T*>(m.bias) + int64_t{octet} * kOctet + part * V::size)
        .unpack(bias);
  }
  // x becomes the sum.
  __device__ __forceinline__ void score(Real (&numbers)[V::size], V& x) const {
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(pack(numbers + j) + pack(bias + j), numbers + j);
    }
    x = V::round(numbers);
  }
};

template <class Precision>
struct WithParameters {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  static constexpr int vectors = kSoiVectors;
  static constexpr int blocks = soi_blocks_per_processor(sizeof(typename V::T), true);

  Real loc[V::size], inverse[V::size];  // of the scale

  __device__ __forceinline__ WithParameters(const SoiForwardOperands& m, uint32_t octet, int part) {
    load(m.loc, octet, part).unpack(loc);
    load(m.scale, octet, part).unpack(inverse);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(inverse_of(bounded(pack(inverse + j))), inverse + j);
    }
  }
  __device__ __forceinline__ void score(Real (&numbers)[V::size], V&) const {
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      const Packed<Real> distance = pack(numbers + j) - pack(loc + j);
      unpack(standard_score(distance, pack(inverse + j)), numbers + j);
    }
  }

 private:
  // One number has as many copies as an octet has elements, and no branch asks for it.
  static __device__ __forceinline__ V load(const Matrix& row, uint32_t octet, int part) {
    const char* const first = row.data + int64_t{octet} * (kOctet * row.column_stride);
    return V::load(reinterpret_cast<const typename V::T*>(first) + part * V::size);
  }
};

// y in place of x, and the bits of the mask, for a part of an octet of the whole.
//
// Half of an element's random bits decide wherever an estimate of 2^32 F is farther from them than
// they and its error leave open. Else, for two elements of 2^16 or so, all bits decide, exactly.
template <class Gate, class Precision, class Real, int size>
__device__ __forceinline__ uint32_t draw(Vector<Precision>& x, const Real (&numbers)[size],
                                         uint64_t octet, int part, uint64_t seed) {
  using V = Vector<Precision>;
  constexpr float open = 0x1p16f + 0x1p32f * Gate::estimate_error;
  constexpr int kWords = V::size / 2;
  float z[V::size], excess[V::size];  // of the random bits over 2^32 F
#pragma unroll
  for (int j = 0; j < V::size; ++j) z[j] = static_cast<float>(numbers[j]);
  uint32_t words[kWords];
  choose<Precision>(words, philox(octet, 0, seed), part);
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
    choose<Precision>(others, philox(octet, 1, seed), part);
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
template <class Gate, class Precision, template <class> class Beside>
__device__ __forceinline__ void forward_elements(const SoiForwardOperands& m, const Octets& octets,
                                                 const WideDivisor& row_length, int64_t octet) {
  using T = StorageOf<Precision>;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
  ElementWords words(begin, m.index, row_length, m.seed.get());
  uint32_t mask = 0;
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    T x = *reinterpret_cast<const T*>(tile_at(m.x, here.row, here.column).data);
    auto number = Storage<Precision>::load(x);
    if constexpr (std::is_same_v<Beside<Precision>, WithParameters<Precision>>) {
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

// Puts the bits of an octet's lanes together to its byte of the mask.
template <class Precision>
__device__ __forceinline__ void write_mask(uint8_t* byte, uint32_t bits, int part) {
  bits <<= part * Vector<Precision>::size;
  // The lanes of other octets may have ended.
  constexpr int lanes = Share<Precision>::lanes;
  const uint32_t own_lanes = ((1u << lanes) - 1) << (threadIdx.x % kWarp - part);
#pragma unroll
  for (int lane = 1; lane < lanes; lane *= 2) bits |= __shfl_xor_sync(own_lanes, bits, lane);
  if (part == 0) *byte = static_cast<uint8_t>(bits);
}

// A thread's vectors lie below each other in as many rows, so that it loads once what lies
// along the columns.
template <class Gate, class Precision, template <class> class Beside>
__global__ void __launch_bounds__(kSoiThreads, Beside<Precision>::blocks)
    draw_rows(const __grid_constant__ SoiForwardOperands m, const __grid_constant__ Octets octets,
              const __grid_constant__ WideDivisor row_length) {
  using V = Vector<Precision>;
  using T = typename V::T;
  wait_for_primary();  // it may draw the seed
  constexpr int lanes = Share<Precision>::lanes, kVectors = Beside<Precision>::vectors;
  const uint32_t place = blockIdx.x * (kSoiThreads / lanes) + threadIdx.x / lanes;
  const int part = threadIdx.x % lanes;
  const uint32_t group = octets.row_in_octets.divide(place);
  const uint32_t column = place - group * octets.row_in_octets.divisor;
  const uint32_t row = group * kVectors;
  const uint32_t first = row * octets.row_in_octets.divisor + column;
  const auto octet = [&](int i) { return first + i * octets.row_in_octets.divisor; };
  const auto is_inside = [&](int i) { return octet(i) < static_cast<uint32_t>(octets.in_vectors); };
  const auto at = [&](const Matrix& matrix, int i) {
    // Rows are less than 2^32 bytes apart: in 64 bits the product would take two instructions.
    const uint64_t before = uint64_t{row + i} * static_cast<uint32_t>(matrix.row_stride);
    const uint64_t offset = uint64_t{column} * (kOctet * sizeof(T)) + part * kVectorBytes;
    return reinterpret_cast<T*>(matrix.data + offset + before);
  };

  // The last octet, if it is not whole, is for a thread that has no other in a small tensor.
  if (static_cast<uint32_t>(octets.elements) % kOctet && blockIdx.x == 0 &&
      threadIdx.x == kSoiThreads - 1) {
    forward_elements<Gate, Precision, Beside>(m, octets, row_length, octets.in_vectors);
  }
  if (!is_inside(0)) return;
  V x[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_inside(i)) x[i] = V::load(at(m.x, i));
  }
  const Beside<Precision> beside(m, column, part);
  const uint64_t seed = m.seed.get();
  const uint64_t first_of_whole = static_cast<uint64_t>(m.index.offset) / kOctet;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!is_inside(i)) return;
    typename Precision::Real numbers[V::size];
    x[i].unpack(numbers);
    beside.score(numbers, x[i]);
    const uint32_t bits = draw<Gate>(x[i], numbers, first_of_whole + octet(i), part, seed);
    x[i].store(at(m.y, i));
    write_mask<Precision>(m.mask + octet(i), bits, part);
  }
}

template <class Gate, class Precision, template <class> class Beside>
__global__ void __launch_bounds__(kThreads)
    draw_elements(const __grid_constant__ SoiForwardOperands m,
                  const __grid_constant__ Octets octets,
                  const __grid_constant__ WideDivisor row_length) {
  wait_for_primary();
  const int64_t octet = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (octet < octets.count()) {
    forward_elements<Gate, Precision, Beside>(m, octets, row_length, octet);
  }
}

using ForwardKernel = void (*)(SoiForwardOperands, Octets, WideDivisor);

// Starts the one of the two kernels that the operands are for.
template <class Precision, class Kernels, int kVectors>
Error launch_forward(Queue queue, SoiForwardOperands m, ForwardKernel of_rows,
                     ForwardKernel of_elements, bool columns_have_vectors) {
  constexpr int64_t size = sizeof(StorageOf<Precision>);
  constexpr int64_t block = kSoiThreads / Share<Precision>::lanes;  // octets
  Octets octets = octets_of(m.rows, m.columns,
                            are_octets_of_whole(m.index) && columns_have_vectors &&
                                has_vectors(m.y, m.rows, size) && has_vectors(m.x, m.rows, size));
  const bool is_same_along = !m.bias && m.loc.column_stride == 0 && m.scale.column_stride == 0;
  if (octets.in_vectors && m.rows == 1 && is_same_along) {
    octets.row_in_octets = Divisor(block);
    m.rows = (octets.in_vectors + block - 1) / block;
    m.y.row_stride = m.x.row_stride = kSoiThreads * kVectorBytes;
  }
  const int64_t groups = (m.rows + kVectors - 1) / kVectors;
  const int64_t places = groups * octets.row_in_octets.divisor;
  // The kernel of rows numbers octets beyond the end, in 32 bits.
  if (!octets.in_vectors || places * kVectors > std::numeric_limits<uint32_t>::max()) {
    return launch_dependent<Kernels>(queue, of_elements, (octets.count() + kThreads - 1) / kThreads,
                                     kThreads, m, octets, row_length_of(m.index));
  }
  return launch_dependent<Kernels>(queue, of_rows, (places + block - 1) / block, kSoiThreads, m,
                                   octets, row_length_of(m.index));
}

}  // namespace gelu_kernels::cuda
