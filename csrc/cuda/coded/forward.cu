// y = g(x + bias), and the codes of g'(x + bias)
#include "csrc/cuda/coded/octet_codes.h"
#include "csrc/cuda/octet_rows.h"
#include "csrc/cuda/random_words.h"

namespace gelu_kernels::cuda {
namespace {

template <class Precision>
constexpr int kRows = coded_octets(sizeof(StorageOf<Precision>));

// y in place of x, and the codes. Whether anything is random is the same for all threads, and no
// other kernel is for it.
template <class Gate, class Precision, bool kHasBias>
__device__ __forceinline__ uint64_t evaluate(Octet<Precision>& x,
                                             const typename Precision::Real (&bias)[kOctet],
                                             const CodedForwardOperands& m, uint32_t octet,
                                             uint64_t seed) {
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  Real values[kOctet];
  float derivatives[kOctet];
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real numbers[V::size], of_vector[V::size];
    x.vectors[i].unpack(numbers);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      Packed<Real> number = pack(numbers + j);
      if constexpr (kHasBias) number = number + pack(bias + i * V::size + j);
      unpack(Gate::template value<Precision>(number), values + i * V::size + j);
      unpack(Gate::template derivative_to_encode<Precision>(number), of_vector + j);
    }
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      derivatives[i * V::size + j] = static_cast<float>(of_vector[j]);
    }
  }
  int32_t codes[kOctet];
  uint32_t kept = 0;  // a bit for each element
  if (m.is_random) {
    const uint64_t of_whole = static_cast<uint64_t>(m.index.offset) / kOctet + octet;
    const RandomWords first = philox(of_whole, 0, seed), second = philox(of_whole, 1, seed);
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      const uint32_t word = word_of(first.word[j / 2], second.word[j / 2], j);
      codes[j] = encode(derivatives[j], m.rounding.of(word), m.codebook);
      if (word >= m.threshold) {
        kept |= 1 << j;
      } else {
        codes[j] = static_cast<int32_t>(m.codebook.zero);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      codes[j] = encode(derivatives[j], m.rounding.least, m.codebook);
    }
  }
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real of_vector[V::size];
    bool kept_of_vector[V::size];
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      of_vector[j] = values[i * V::size + j];
      kept_of_vector[j] = kept >> (i * V::size + j) & 1;
    }
    if (m.drops) {
#pragma unroll
      for (int j = 0; j < V::size; ++j) of_vector[j] *= m.factor.as<Real>();
      x.vectors[i] = V::round(of_vector).select(kept_of_vector);
    } else if constexpr (kHasBias) {
      x.vectors[i] = V::round(of_vector);
    } else {
      x.vectors[i] = V::template round_values<Gate::ties>(of_vector, x.vectors[i]);
    }
  }
  return join_codes(codes);
}

// Octets in vectors.
template <class Gate, class Precision, bool kHasBias>
__global__ void __launch_bounds__(kOctetThreads,
                                  coded_blocks_per_processor(sizeof(StorageOf<Precision>),
                                                             kPacked<typename Precision::Real> > 1))
    map_octets(const __grid_constant__ CodedForwardOperands m,
               const __grid_constant__ Octets octets, const __grid_constant__ WideDivisor) {
  constexpr int count = kRows<Precision>;
  const OctetRows<Precision, count> rows(octets);
  if (!rows.has(0)) return;
  Octet<Precision> x[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) break;
    x[i] = Octet<Precision>::load(rows.at(m.x, i));
  }
  typename Precision::Real bias[kOctet];
  if constexpr (kHasBias) rows.load_along(m.bias).unpack(bias);
  const uint64_t seed = m.is_random ? m.seed.get() : 0;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) return;
    const uint32_t octet = rows.octet(i);
    const uint64_t codes = evaluate<Gate, Precision, kHasBias>(x[i], bias, m, octet, seed);
    x[i].store(rows.at(m.y, i));
    store_codes(m.code, octet, codes, m.codebook.bits);
  }
}

// Any octets, element by element.
template <class Gate, class Precision>
__global__ void __launch_bounds__(kOctetThreads)
    map_elements(const __grid_constant__ CodedForwardOperands m,
                 const __grid_constant__ Octets octets, int64_t first,
                 const __grid_constant__ WideDivisor row_length) {
  using T = StorageOf<Precision>;
  using Real = typename Precision::Real;
  using S = Storage<Precision>;
  const int64_t octet = first + int64_t{blockIdx.x} * kOctetThreads + threadIdx.x;
  if (octet >= octets.count()) return;
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
    const Real derivative = Gate::template derivative_to_encode<Precision>(number);
    T y = m.bias ? S::store(value) : S::store_value(value);
    if (m.drops) y = kept ? S::store(value * m.factor.as<Real>()) : T(0);
    *reinterpret_cast<T*>(tile_at(m.y, here.row, here.column).data) = y;
    int32_t code = encode(static_cast<float>(derivative), m.rounding.of(word), m.codebook);
    if (!kept) code = static_cast<int32_t>(m.codebook.zero);
    codes |= static_cast<uint64_t>(code & 0xff) << (8 * i);
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

template <class Gate, class Precision>
Error launch_coded_forward(Queue queue, const CodedForwardOperands& m) {
  constexpr auto of_elements = map_elements<Gate, Precision>;
  constexpr auto alone = map_octets<Gate, Precision, false>;
  constexpr auto biased = map_octets<Gate, Precision, true>;
  constexpr int64_t size = sizeof(StorageOf<Precision>);
  const Octets octets =
      octets_of(m.rows, m.columns,
                are_octets_of_whole(m.index) && has_vectors(m.bias) && has_whole_words(m.code) &&
                    has_vectors(m.y, m.rows, size) && has_vectors(m.x, m.rows, size));
  using M = CodedForwardOperands;
  return launch_octets<KernelSet<of_elements, alone, biased>, kRows<Precision>>(
      queue, m, octets, {&M::y, &M::x}, m.bias ? biased : alone, of_elements,
      row_length_of(m.index));
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
