// y = g(x + bias), and the codes of g'(x + bias)
#include "csrc/cuda/coded/octet_codes.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/random_words.h"

namespace gelu_kernels::cuda {
namespace {

__device__ __forceinline__ uint32_t encoded(float derivative, uint32_t word, bool kept,
                                            const CodedForwardOperands& m) {
  const int32_t code = encode(derivative, m.rounding.of(word), m.codebook);
  return static_cast<uint32_t>(kept ? code : static_cast<int32_t>(m.codebook.zero));
}

// y in place of x, and the codes. Whether there is a bias, and whether anything is random, is the
// same for all threads, and no other kernel is for it.
template <class Gate, class Precision>
__device__ __forceinline__ uint64_t evaluate(Octet<Precision>& x, const CodedForwardOperands& m,
                                             const Octets& octets, uint32_t octet, uint64_t seed) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  const T* bias =
      reinterpret_cast<const T*>(octets.at<T>({const_cast<char*>(m.bias), 0, 0}, octet));
  const Real factor = m.factor.as<Real>();
  uint64_t codes = 0;
  RandomWords first = {}, second = {};
  if (m.is_random) {
    const uint64_t of_whole = static_cast<uint64_t>(m.index.offset) / kOctet + octet;
    first = philox(of_whole, 0, seed);
    second = philox(of_whole, 1, seed);
  }
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real numbers[V::size], values[V::size], derivatives[V::size];
    x.vectors[i].unpack(numbers);
    if (m.bias) {
      Real addends[V::size];
      V::load(bias + i * V::size).unpack(addends);
#pragma unroll
      for (int j = 0; j < V::size; ++j) numbers[j] += addends[j];
    }
    bool kept[V::size];
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      const Packed<Real> number = pack(numbers + j);
      unpack(Gate::template value<Precision>(number), values + j);
      unpack(Gate::template derivative<Precision>(number), derivatives + j);
#pragma unroll
      for (int k = j; k < j + kPacked<Real>; ++k) {
        const int element = i * V::size + k;
        const uint32_t word = word_of(first.word[element / 2], second.word[element / 2], element);
        kept[k] = word >= m.threshold;
        const uint32_t code = encoded(static_cast<float>(derivatives[k]), word, kept[k], m);
        codes |= static_cast<uint64_t>(code) << (8 * element);
      }
    }
    if (m.drops) {
#pragma unroll
      for (int j = 0; j < V::size; ++j) values[j] *= factor;
      x.vectors[i] = V::round(values).select(kept);
    } else if (m.bias) {
      x.vectors[i] = V::round(values);
    } else {
      x.vectors[i] = V::template round_values<Gate::ties>(values, x.vectors[i]);
    }
  }
  return codes;
}

// Any octet, element by element.
template <class Gate, class Precision>
__device__ __forceinline__ void evaluate_elements(const CodedForwardOperands& m,
                                                  const Octets& octets,
                                                  const WideDivisor& row_length, int64_t octet) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  using S = Storage<Precision>;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
  ElementWords words(begin, m.index, row_length, m.is_random ? m.seed.get() : 0);
  uint64_t codes = 0;
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    Real number = S::load(*reinterpret_cast<const T*>(tile_at(m.x, here.row, here.column).data));
    if (m.bias) number += S::load(reinterpret_cast<const T*>(m.bias)[here.column]);
    const uint32_t word = m.is_random ? words.next(row_length) : 0;
    const bool kept = word >= m.threshold;
    const Real value = Gate::template value<Precision>(number);
    const Real derivative = Gate::template derivative<Precision>(number);
    T y = m.bias ? S::store(value) : S::store_value(value);
    if (m.drops) y = kept ? S::store(value * m.factor.as<Real>()) : T(0);
    *reinterpret_cast<T*>(tile_at(m.y, here.row, here.column).data) = y;
    const uint32_t code = encoded(static_cast<float>(derivative), word, kept, m);
    codes |= static_cast<uint64_t>(code) << (8 * i);
    here.advance(octets.columns);
  }
  if (m.codebook.bits == 8) {
#pragma unroll 1
    for (int i = 0; i < left; ++i) m.code[begin + i] = code_of(codes, i);
  } else {
    const uint32_t packed = pack_pairs(codes);
#pragma unroll 1
    for (int i = 0; 2 * i < left; ++i) {
      m.code[begin / 2 + i] = static_cast<uint8_t>(packed >> (8 * i));
    }
  }
}

// Of elements of any layout, as octets that are not in vectors go one by one.
template <class Gate, class Precision>
__global__ void __launch_bounds__(kThreads,
                                  coded_octet_blocks_per_processor(sizeof(StorageOf<Precision>)))
    map_octets(const __grid_constant__ CodedForwardOperands m,
               const __grid_constant__ Octets octets,
               const __grid_constant__ WideDivisor row_length) {
  using T = StorageOf<Precision>;
  const int64_t first = int64_t{blockIdx.x} * (kOctets * kThreads) + threadIdx.x;
  if (first + (kOctets - 1) * kThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < kOctets; ++i) {
      const int64_t octet = first + i * kThreads;
      if (octet < octets.count()) {
        evaluate_elements<Gate, Precision>(m, octets, row_length, octet);
      }
    }
    return;
  }
  Octet<Precision> x[kOctets];
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    x[i] = Octet<Precision>::load(octets.at<T>(m.x, static_cast<uint32_t>(first) + i * kThreads));
  }
  const uint64_t seed = m.is_random ? m.seed.get() : 0;
#pragma unroll
  for (int i = 0; i < kOctets; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kThreads;
    const uint64_t codes = evaluate<Gate, Precision>(x[i], m, octets, octet, seed);
    x[i].store(octets.at<T>(m.y, octet));
    store_codes(m.code, octet, codes, m.codebook.bits);
  }
}

template <class Gate, class Precision>
Error launch_coded_forward(Queue queue, const CodedForwardOperands& m) {
  constexpr int64_t size = sizeof(StorageOf<Precision>);
  constexpr auto kernel = map_octets<Gate, Precision>;
  const Octets octets =
      octets_of(m.rows, m.columns,
                are_octets_of_whole(m.index) && has_vectors(m.bias) && has_whole_words(m.code) &&
                    has_vectors(m.y, m.rows, size) && has_vectors(m.x, m.rows, size));
  constexpr int64_t block = kThreads * kOctets * kOctet;
  return launch<KernelSet<kernel>>(queue, kernel, (octets.elements + block - 1) / block, kThreads,
                                   m, octets, row_length_of(m.index));
}

template <class Gate, class Precision>
struct Entry {
  static constexpr auto value = launch_coded_forward<Gate, Precision>;
};

}  // namespace

Error (*coded_forward(Gate gate, Dtype dtype))(Queue, const CodedForwardOperands&) {
  return find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
