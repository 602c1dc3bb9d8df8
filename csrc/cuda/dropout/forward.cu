// y = m g(x + bias) up k, m ~ Bernoulli(1 - p)
#include "csrc/cuda/dropout/plan.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/random_words.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {
namespace {

// y in place of x, where the mask is 1.
template <class Gate, class Precision>
__device__ __forceinline__ void apply(Octet<Precision>& x, const Octet<Precision>& up,
                                      uint32_t mask, const DropoutForwardOperands& m,
                                      const Octets& octets, uint32_t octet) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  const Packed<Real> factor(m.dropout.factor.as<Real>());
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real numbers[V::size], beside[V::size];
    x.vectors[i].unpack(numbers);
    if (m.bias) {
      const char* bias = octets.at<T>({const_cast<char*>(m.bias), 0, 0}, octet);
      V::load(reinterpret_cast<const T*>(bias) + i * V::size).unpack(beside);
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        unpack(pack(numbers + j) + pack(beside + j), numbers + j);
      }
    }
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(value_as_factor<Gate, Precision>(pack(numbers + j)), numbers + j);
    }
    if (m.up.data) {
      up.vectors[i].unpack(beside);
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        unpack(pack(numbers + j) * pack(beside + j), numbers + j);
      }
    }
    bool kept[V::size];
#pragma unroll
    for (int j = 0; j < V::size; ++j) kept[j] = mask >> (i * V::size + j) & 1;
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(pack(numbers + j) * factor, numbers + j);
    }
    x.vectors[i] = V::round(numbers).select(kept);
  }
}

// Any octet, element by element.
template <class Gate, class Precision>
__device__ __forceinline__ void draw_elements(const DropoutForwardOperands& m, const Octets& octets,
                                              const WideDivisor& row_length, int64_t octet) {
  using T = StorageOf<Precision>;
  using S = Storage<Precision>;
  using Real = typename Precision::Real;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  Cursor here(begin, octets.columns);
  ElementWords words(begin, m.index, row_length, m.seed.get());
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

template <class Precision>
using Plan = DropoutPlan<Precision, 2>;

template <class Gate, class Precision>
__global__ void __launch_bounds__(kThreads, Plan<Precision>::blocks)
    draw_dropout(const __grid_constant__ DropoutForwardOperands m,
                 const __grid_constant__ Octets octets,
                 const __grid_constant__ WideDivisor row_length) {
  using T = StorageOf<Precision>;
  constexpr int count = Plan<Precision>::octets;
  const int64_t first = int64_t{blockIdx.x} * (count * kThreads) + threadIdx.x;
  if (first + (count - 1) * kThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int64_t octet = first + i * kThreads;
      if (octet < octets.count()) draw_elements<Gate, Precision>(m, octets, row_length, octet);
    }
    return;
  }
  Octet<Precision> x[count], up[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kThreads;
    x[i] = Octet<Precision>::load(octets.at<T>(m.x, octet));
    if (m.up.data) up[i] = Octet<Precision>::load(octets.at<T>(m.up, octet));
  }
  const uint64_t seed = m.seed.get();
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kThreads;
    const uint32_t mask = byte_of_octet(m.index, m.dropout.threshold, octet, seed);
    m.mask[octet] = static_cast<uint8_t>(mask);
    apply<Gate, Precision>(x[i], up[i], mask, m, octets, octet);
    x[i].store(octets.at<T>(m.y, octet));
  }
}

template <class Gate, class Precision>
Error launch_dropout_forward(Queue queue, const DropoutForwardOperands& m) {
  constexpr int64_t size = Plan<Precision>::size;
  constexpr auto kernel = draw_dropout<Gate, Precision>;
  const Octets octets = octets_of(
      m.rows, m.columns,
      are_octets_of_whole(m.index) && has_vectors(m.bias) && has_vectors(m.y, m.rows, size) &&
          has_vectors(m.x, m.rows, size) && (!m.up.data || has_vectors(m.up, m.rows, size)));
  constexpr int64_t block = Plan<Precision>::elements;
  return launch<KernelSet<kernel>>(queue, kernel, (octets.elements + block - 1) / block, kThreads,
                                   m, octets, row_length_of(m.index));
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
