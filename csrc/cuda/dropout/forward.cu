// y = m g(x + bias) up k, m ~ Bernoulli(1 - p)
#include "csrc/cuda/dropout/plan.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/random_words.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// What lies beside x: nothing, a bias, or up.
enum class Beside { kNothing, kBias, kUp };

namespace {

// as_factor() of an octet: it asks once whether any value becomes a zero.
template <class Precision, int size>
__device__ __forceinline__ void flush(float (&values)[size]) {
  int32_t least = static_cast<int32_t>(bits(values[0]));
#pragma unroll
  for (int j = 1; j < size; ++j) least = min(least, static_cast<int32_t>(bits(values[j])));
  // As signed integers a zero that is negative, and what becomes one, are the least of all.
  if (bits(as_factor<Precision>(from_bits(static_cast<uint32_t>(least)))) != 0x80000000) return;
#pragma unroll
  for (int j = 0; j < size; j += kPacked<float>) {
    unpack(as_factor<Precision>(pack(values + j)), values + j);
  }
}

// y in place of x.
template <class Gate, class Precision, Beside kBeside, class Real>
__device__ __forceinline__ void apply(Octet<Precision>& x, const Octet<Precision>& up,
                                      const Real (&bias)[kOctet], const Factor& dropout_factor) {
  using V = Vector<Precision>;
  const Packed<Real> factor(dropout_factor.as<Real>());
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real numbers[V::size], beside[V::size];
    x.vectors[i].unpack(numbers);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      Packed<Real> number = pack(numbers + j);
      if constexpr (kBeside == Beside::kBias) number = number + pack(bias + i * V::size + j);
      unpack(Gate::template value<Precision>(number), numbers + j);
    }
    if constexpr (is_half<Precision>) flush<Precision>(numbers);
    if constexpr (kBeside == Beside::kUp) up.vectors[i].unpack(beside);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      Packed<Real> y = pack(numbers + j);
      if constexpr (kBeside == Beside::kUp) y = y * pack(beside + j);
      unpack(y * factor, numbers + j);
    }
    x.vectors[i] = V::round(numbers);
  }
}

template <class Precision, Beside kBeside>
using Plan = DropoutPlan<Precision, kBeside == Beside::kUp ? 2 : 1>;

// Octets in vectors.
template <class Gate, class Precision, Beside kBeside>
__global__ void __launch_bounds__(kOctetThreads, Plan<Precision, kBeside>::blocks)
    draw_dropout(const __grid_constant__ DropoutForwardOperands m,
                 const __grid_constant__ Octets octets, const __grid_constant__ WideDivisor) {
  constexpr int count = Plan<Precision, kBeside>::rows;
  constexpr bool kHasUp = kBeside == Beside::kUp;
  const OctetRows<Precision, count> rows(octets);
  if (!rows.has(0)) return;
  Octet<Precision> x[count], up[kHasUp ? count : 1];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) break;
    x[i] = Octet<Precision>::load(rows.at(m.x, i));
    if constexpr (kHasUp) up[i] = Octet<Precision>::load(rows.at(m.up, i));
  }
  typename Precision::Real bias[kOctet];
  if constexpr (kBeside == Beside::kBias) rows.load_along(m.bias).unpack(bias);
  const uint64_t seed = m.seed.get();
  const uint64_t first_of_whole = static_cast<uint64_t>(m.index.offset) / kOctet;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) return;
    // The upper half is the same for all octets.
    const uint32_t lower = static_cast<uint32_t>(first_of_whole) + rows.octet(i);
    const uint64_t of_whole = first_of_whole >> 32 << 32 | lower;
    const KeptSigns kept = draw_octet(of_whole, m.dropout.threshold, seed);
    m.mask[rows.octet(i)] = static_cast<uint8_t>(kept.byte());
    apply<Gate, Precision, kBeside>(x[i], up[kHasUp ? i : 0], bias, m.dropout.factor);
    kept.select(x[i]);
    x[i].store(rows.at(m.y, i));
  }
}

// Any octets, element by element.
template <class Gate, class Precision>
__global__ void __launch_bounds__(kOctetThreads, Plan<Precision, Beside::kNothing>::blocks)
    draw_dropout_elements(const __grid_constant__ DropoutForwardOperands m,
                          const __grid_constant__ Octets octets, int64_t first,
                          const __grid_constant__ WideDivisor row_length) {
  using T = StorageOf<Precision>;
  using S = Storage<Precision>;
  using Real = typename Precision::Real;
  const uint64_t seed = m.seed.get();
  const int64_t octet = first + int64_t{blockIdx.x} * kOctetThreads + threadIdx.x;
  if (octet >= octets.count()) return;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
  ElementWords words(begin, m.index, row_length, seed);
  uint32_t mask = 0;
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const auto at = [&here](const Matrix& of) {
      return reinterpret_cast<T*>(tile_at(of, here.row, here.column).data);
    };
    Real x = S::load(*at(m.x));
    if (m.bias) x += S::load(reinterpret_cast<const T*>(m.bias)[here.column]);
    Real y = value_as_factor<Gate, Precision>(x);
    if (m.up.data) y *= S::load(*at(m.up));
    const bool kept = words.next(row_length) >= m.dropout.threshold;
    *at(m.y) = kept ? S::store(y * m.dropout.factor.as<Real>()) : T(0);
    mask |= kept ? 1 << i : 0;
    here.advance(octets.columns);
  }
  m.mask[octet] = static_cast<uint8_t>(mask);
}

template <class Gate, class Precision>
Error launch_dropout_forward(Queue queue, const DropoutForwardOperands& m) {
  constexpr auto of_elements = draw_dropout_elements<Gate, Precision>;
  constexpr auto alone = draw_dropout<Gate, Precision, Beside::kNothing>;
  constexpr auto biased = draw_dropout<Gate, Precision, Beside::kBias>;
  constexpr auto gated = draw_dropout<Gate, Precision, Beside::kUp>;
  using Kernels = KernelSet<of_elements, alone, biased, gated>;
  const auto are_vectors = [&m](const Matrix& of) {
    return has_vectors(of, m.rows, sizeof(StorageOf<Precision>));
  };
  const Octets octets =
      octets_of(m.rows, m.columns,
                are_octets_of_whole(m.index, m.rows * m.columns) && has_vectors(m.bias) &&
                    are_vectors(m.y) && are_vectors(m.x) && (!m.up.data || are_vectors(m.up)));
  using M = DropoutForwardOperands;
  const auto matrices = {&M::y, &M::x, &M::up};
  if (m.up.data) {
    return launch_octets<Kernels, Plan<Precision, Beside::kUp>::rows>(
        queue, m, octets, matrices, gated, of_elements, row_length_of(m.index));
  }
  return launch_octets<Kernels, Plan<Precision, Beside::kNothing>::rows>(
      queue, m, octets, matrices, m.bias ? biased : alone, of_elements, row_length_of(m.index));
}

template <class Gate, class Precision>
struct Entry {
  static constexpr auto value = launch_dropout_forward<Gate, Precision>;
};

}  // namespace

Error (*dropout_forward(Gate gate, Dtype dtype))(Queue, const DropoutForwardOperands&) {
  return find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
