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

// 2^23: the last place of a number from there on is 1, below 1/2.
constexpr float kUnits = 0x1p23f;

// The random half of an element, as the last bits of 2^23, and in each half of a word all bits are
// bit 23 of a number: `low` has the low half.
__device__ __forceinline__ float with_half(uint32_t word, int element) {
  // Of two constants ptxas copies one to a register at every use. So it sees none: y is 0.
  return from_bits(__byte_perm(word, bits(kUnits) + threadIdx.y, element % 2 ? 0x7632 : 0x7610));
}
__device__ __forceinline__ uint32_t signs_of(uint32_t low, uint32_t high) {
  uint32_t signs;  // __byte_perm() knows no signs
  asm("prmt.b32 %0, %1, %2, 0xeeaa;" : "=r"(signs) : "r"(low), "r"(high));
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
// x into the numbers that F takes, for an estimate; exact_score() does for one element, exactly.
// Where `is_unclear`, there is no estimate.
template <class Precision>
struct Alone {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  static constexpr int vectors = soi_vectors(sizeof(typename V::T));
  static constexpr int blocks =
      soi_blocks_per_processor(sizeof(typename V::T), 0, kPacked<float> > 1);
  static constexpr bool is_unclear = false;

  __device__ __forceinline__ Alone(const SoiForwardOperands&, uint32_t, int) {}
  __device__ __forceinline__ void score(float (&z)[V::size], V& x) const {
    Real numbers[V::size];
    x.unpack(numbers);
#pragma unroll
    for (int j = 0; j < V::size; ++j) z[j] = static_cast<float>(numbers[j]);
  }
  __device__ __forceinline__ float exact_score(float z, const V&, int) const { return z; }
};

template <class Precision>
struct WithBias {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  static constexpr int vectors = soi_vectors(sizeof(typename V::T));
  static constexpr int blocks =
      soi_blocks_per_processor(sizeof(typename V::T), 1, kPacked<float> > 1);
  static constexpr bool is_unclear = false;

  Real bias[V::size];

  // For a part of an octet of a row.
  __device__ __forceinline__ WithBias(const SoiForwardOperands& m, uint32_t octet, int part) {
    using T = typename V::T;
    V::load(reinterpret_cast<const T*>(m.bias) + int64_t{octet} * kOctet + part * V::size)
        .unpack(bias);
  }
  // x becomes the sum.
  __device__ __forceinline__ void score(float (&z)[V::size], V& x) const {
    Real numbers[V::size];
    x.unpack(numbers);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(pack(numbers + j) + pack(bias + j), numbers + j);
    }
    x = V::round(numbers);
#pragma unroll
    for (int j = 0; j < V::size; ++j) z[j] = static_cast<float>(numbers[j]);
  }
  __device__ __forceinline__ float exact_score(float z, const V&, int) const { return z; }
};

template <class Precision>
struct WithParameters {
  using V = Vector<Precision>;
  using T = typename V::T;
  using Real = typename Precision::Real;
  static constexpr int vectors = soi_vectors(sizeof(T));
  static constexpr int blocks = soi_blocks_per_processor(sizeof(T), 2, kPacked<float> > 1);

  Real loc[V::size];
  float inverse[V::size];  // of the scale, about
  const T* scale;
  bool is_unclear;  // whether a scale has no inverse that is a normal number

  __device__ __forceinline__ WithParameters(const SoiForwardOperands& m, uint32_t octet, int part)
      : scale(at(m.scale, octet, part)) {
    Real scales[V::size];
    V::load(at(m.loc, octet, part)).unpack(loc);
    V::load(scale).unpack(scales);
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      const float number = static_cast<float>(scales[j]);
      inverse[j] = about_inverse(number);
      most = max(most, bits(number) - bits(Format<float>::smallest_normal));
    }
    is_unclear =
        most > bits(0.5f / Format<float>::smallest_normal) - bits(Format<float>::smallest_normal);
  }
  __device__ __forceinline__ void score(float (&z)[V::size], V& x) const {
    Real numbers[V::size];
    x.unpack(numbers);
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      z[j] = static_cast<float>(numbers[j] - loc[j]) * inverse[j];
    }
  }
  __device__ __forceinline__ float exact_score(float, const V& x, int j) const {
    Real numbers[V::size];
    x.unpack(numbers);
    return static_cast<float>(standard_score(
        numbers[j] - loc[j], inverse_of(bounded(Storage<Precision>::load(scale[j])))));
  }

 private:
  // A template, because the compiler of the host does not know the unit.
  template <class Float>
  static __device__ __forceinline__ Float about_inverse(Float x) {
    return approximate_reciprocal(x);
  }
  // One number has as many copies as an octet has elements, and no branch asks for it.
  static __device__ __forceinline__ const T* at(const Matrix& row, uint32_t octet, int part) {
    const char* const first = row.data + int64_t{octet} * (kOctet * row.column_stride);
    return reinterpret_cast<const T*>(first) + part * V::size;
  }
};

// Places in memory, `step` bytes from one to the next, at one instruction each. Of a sum that the
// compiler sees it would add the parts anew for each place, which takes up to five.
class Places {
 public:
  __device__ __forceinline__ Places(const void* first, uint32_t step)
      : first_(__cvta_generic_to_global(first)), step_(step) {
    asm("" : "+l"(first_));
  }
  template <class T>
  __device__ __forceinline__ T* at(uint32_t i) const {
    asm("" : "+r"(i));
    return static_cast<T*>(__cvta_global_to_generic(first_ + uint64_t{step_} * i));
  }

 private:
  size_t first_;
  uint32_t step_;
};

// y in place of x, and the bits of the mask, for a part of an octet of the whole.
//
// Half of an element's random bits decide wherever an estimate of 2^16 F is farther from them than
// they and its error leave open. Else, for an element of 2^14 or so, all bits decide, exactly.
template <class Gate, class Precision, class Columns>
__device__ __forceinline__ uint32_t draw(Vector<Precision>& x, const Columns& columns,
                                         uint64_t octet, int part, uint64_t seed) {
  using V = Vector<Precision>;
  constexpr int kWords = V::size / 2;
  // What is open: the rest of the bits, less than 1, the error and the rounding of the difference.
  // Last places of a difference below 0 and above it.
  constexpr float error = 0x1p16f * Gate::estimate_error;
  constexpr uint32_t below = static_cast<uint32_t>(2 * (1 + error + 0.25f));
  constexpr uint32_t above = static_cast<uint32_t>(error + 0.5f);
  float z[V::size];
  uint32_t excess[V::size];  // of the random bits over 2^16 F, plus 2^23; bit 23 is set below it
  columns.score(z, x);
  uint32_t words[kWords];
  choose<Precision>(words, philox(octet, 0, seed), part);
  uint32_t least = UINT32_MAX;
#pragma unroll
  for (int j = 0; j < V::size; j += kPacked<float>) {
    float random[kPacked<float>], difference[kPacked<float>];
#pragma unroll
    for (int k = 0; k < kPacked<float>; ++k) random[k] = with_half(words[(j + k) / 2], j + k);
    const auto distribution = Gate::distribution_estimate(pack(z + j));
    unpack(fma(distribution, Packed<float>(-0x1p16f), pack(random)), difference);
#pragma unroll
    for (int k = 0; k < kPacked<float>; ++k) {
      excess[j + k] = bits(difference[k]);
      least = min(least, excess[j + k] - (bits(kUnits) - below));
    }
  }
  if (least <= below + above || columns.is_unclear) {
    // Drawn again, or they would keep registers for all elements.
    asm("" : "+l"(octet));
    uint32_t others[kWords];
    choose<Precision>(words, philox(octet, 0, seed), part);
    choose<Precision>(others, philox(octet, 1, seed), part);
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      if (excess[j] - (bits(kUnits) - below) > below + above && !columns.is_unclear) continue;
      const bool kept =
          bernoulli<Gate>(columns.exact_score(z[j], x, j), word_of(words[j / 2], others[j / 2], j));
      excess[j] = kept ? bits(kUnits) - 1 : bits(kUnits);
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
      kept[k] = signs_of(excess[j], excess[j]);
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
  const uint32_t step = octets.row_in_octets.divisor, first = row * step + column;
  // Octets of the whole: in 32 bits none carries.
  const uint64_t first_of_whole = static_cast<uint64_t>(m.index.offset) / kOctet;
  const uint32_t low = static_cast<uint32_t>(first_of_whole);
  const auto octet = [&](int i) { return low + first + i * step; };
  const auto is_inside = [&](int i) {
    return octet(i) < low + static_cast<uint32_t>(octets.in_vectors);
  };
  const auto rows_of = [&](const Matrix& matrix) {
    const uint32_t stride = static_cast<uint32_t>(matrix.row_stride);  // has_vectors() says so
    const uint64_t offset = uint64_t{column} * (kOctet * sizeof(T)) + part * kVectorBytes;
    return Places(matrix.data + (offset + uint64_t{row} * stride), stride);
  };

  // The last octet, if it is not whole, is for a thread that has no other in a small tensor.
  if (static_cast<uint32_t>(octets.elements) % kOctet && blockIdx.x == 0 &&
      threadIdx.x == kSoiThreads - 1) {
    forward_elements<Gate, Precision, Beside>(m, octets, row_length, octets.in_vectors);
  }
  if (!is_inside(0)) return;
  const Places places = rows_of(m.x);
  V x[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_inside(i)) x[i] = V::load(places.at<T>(i));
  }
  const Beside<Precision> beside(m, column, part);
  const uint64_t seed = m.seed.get();
  const Places results = rows_of(m.y), bytes(m.mask + first, step);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!is_inside(i)) return;
    const uint64_t octet_of_whole = (first_of_whole >> 32 << 32) | octet(i);
    const uint32_t bits = draw<Gate>(x[i], beside, octet_of_whole, part, seed);
    x[i].store(results.at<T>(i));
    write_mask<Precision>(bytes.at<uint8_t>(i), bits, part);
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
  // The kernel of rows numbers octets of the whole, and beyond the end, in 32 bits.
  const int64_t before = static_cast<uint32_t>(m.index.offset / kOctet);
  if (!octets.in_vectors || before + places * kVectors > std::numeric_limits<uint32_t>::max()) {
    return launch_dependent<Kernels>(queue, of_elements, (octets.count() + kThreads - 1) / kThreads,
                                     kThreads, m, octets, row_length_of(m.index));
  }
  return launch_dependent<Kernels>(queue, of_rows, (places + block - 1) / block, kSoiThreads, m,
                                   octets, row_length_of(m.index));
}

}  // namespace gelu_kernels::cuda
