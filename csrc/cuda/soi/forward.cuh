// The SOI map and its mask.
#pragma once

#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/random_words.h"
#include "csrc/gates/cdf.h"
#include "csrc/random/bernoulli.h"

namespace gelu_kernels::cuda {

// What lies along the columns beside x.
struct Alone {};
struct WithBias {};
struct WithParameters {};

// A location or a scale for each element of an octet's vector. The vectors of an octet take turns:
// float64 has no registers for all. A number has as many copies, and no branch asks for it.
template <class Precision, class Real, int size>
__device__ __forceinline__ void load_parameter(Real (&to)[size], const Matrix& from,
                                               const Octets& octets, uint32_t octet, int vector) {
  const uint32_t row = octets.row_in_octets.divide(octet);
  const int64_t column = octet - row * octets.row_in_octets.divisor;
  const char* place = from.data + column * (kOctet * from.column_stride);
  Vector<Precision>::load(reinterpret_cast<const StorageOf<Precision>*>(place) + vector * size)
      .unpack(to);
}

// y in place of x, and the byte of the mask. Two groups hold the octet's random words.
template <class Gate, class Precision, class Beside>
__device__ __forceinline__ uint32_t draw(Octet<Precision>& x, const SoiForwardOperands& m,
                                         const Octets& octets, uint32_t octet, uint64_t seed) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  constexpr bool kBias = std::is_same_v<Beside, WithBias>;
  constexpr bool kParameters = std::is_same_v<Beside, WithParameters>;
  const uint64_t group = m.index.offset / 4 + octet * uint64_t{2};
  Octet<Precision> addend;
  if constexpr (kBias) {
    addend = Octet<Precision>::load(octets.at<T>({const_cast<char*>(m.bias), 0, 0}, octet));
  }
  uint32_t mask = 0;
  RandomWords random;
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real numbers[V::size];
    x.vectors[i].unpack(numbers);
    if constexpr (kBias) {
      Real addends[V::size];
      addend.vectors[i].unpack(addends);
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        unpack(pack(numbers + j) + pack(addends + j), numbers + j);
      }
      x.vectors[i] = V::round(numbers);
    }
    if constexpr (kParameters) {
      Real loc[V::size], scale[V::size];
      load_parameter<Precision>(loc, m.loc, octets, octet, i);
      load_parameter<Precision>(scale, m.scale, octets, octet, i);
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        const Packed<Real> distance = pack(numbers + j) - pack(loc + j);
        unpack(standard_score(distance, inverse_of(bounded(pack(scale + j)))), numbers + j);
      }
    }
    bool kept[V::size];
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      const int element = i * V::size + j;
      if (element % 4 == 0) random = philox(group + element / 4, seed);
      Real words[kPacked<Real>];
#pragma unroll
      for (int k = 0; k < kPacked<Real>; ++k) {
        words[k] = static_cast<float>(random.word[element % 4 + k]);
      }
      unpack(bernoulli<Gate>(pack(numbers + j), pack(words)), kept + j);
#pragma unroll
      for (int k = 0; k < kPacked<Real>; ++k) {
        if (kept[j + k]) mask |= 1 << (element + k);
      }
    }
    x.vectors[i] = x.vectors[i].select(kept);
  }
  return mask;
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

template <class Precision, class Beside>
constexpr int octet_blocks_per_processor() {
  if (!std::is_same_v<Beside, WithParameters>) return kOctetBlocksPerProcessor;
  return parameter_octet_blocks_per_processor(sizeof(StorageOf<Precision>));
}

template <class Gate, class Precision, class Beside>
__global__ void __launch_bounds__(kThreads, octet_blocks_per_processor<Precision, Beside>())
    draw_vectors(const __grid_constant__ SoiForwardOperands m,
                 const __grid_constant__ Octets octets,
                 const __grid_constant__ WideDivisor row_length) {
  using T = StorageOf<Precision>;
  constexpr bool kParameters = std::is_same_v<Beside, WithParameters>;
  const uint32_t first = blockIdx.x * (kOctets * kThreads) + threadIdx.x;
  if (first + (kOctets - 1) * kThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < kOctets; ++i) {
      const uint32_t octet = first + i * kThreads;
      if (octet < octets.count()) {
        forward_elements<Gate, Precision, kParameters>(m, octets, row_length, octet);
      }
    }
    return;
  }
  Octet<Precision> x[kOctets];
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    x[i] = Octet<Precision>::load(octets.at<T>(m.x, first + i * kThreads));
  }
  const uint64_t seed = *m.seed;
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    const uint32_t octet = first + i * kThreads;
    const uint32_t mask = draw<Gate, Precision, Beside>(x[i], m, octets, octet, seed);
    x[i].store(octets.at<T>(m.y, octet));
    m.mask[octet] = static_cast<uint8_t>(mask);
  }
}

template <class Gate, class Precision, bool kParameters>
__global__ void __launch_bounds__(kThreads)
    draw_elements(const __grid_constant__ SoiForwardOperands m,
                  const __grid_constant__ Octets octets,
                  const __grid_constant__ WideDivisor row_length) {
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
  const Octets octets = octets_of(m.rows, m.columns,
                                  from_a_group(m.index) && columns_have_vectors &&
                                      has_vectors(m.y, size) && has_vectors(m.x, size));
  const int64_t block = kThreads * (octets.in_vectors ? kOctets : 1) * kOctet;
  return launch<Kernels>(queue, octets.in_vectors ? of_vectors : of_elements,
                         (octets.elements + block - 1) / block, kThreads, m, octets,
                         row_length_of(m.index));
}

}  // namespace gelu_kernels::cuda
