// The gradients of dropout: m dy k selects and scales elements of dy for the gradients of a gate,
// or a gated linear unit.
#pragma once

#include "csrc/cuda/dropout/plan.h"
#include "csrc/cuda/kept_signs.h"
#include "csrc/cuda/packed.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// dx; or dx and dup, with an up for the addend.
template <class Function, class Real>
__device__ __forceinline__ auto gradients_of(Real dy, Real x, Real beside) {
  if constexpr (Function::outputs == 2) {
    return Function::apply(dy, x, beside);
  } else {
    return Two<Real>{Function::apply(dy, x), Real()};
  }
}

template <class Function, class Precision>
using Plan = DropoutPlan<Precision, Function::inputs>;

// dx in place of dy, and dup in place of x.
template <class Function, class Precision, bool kBiased, class Real>
__device__ __forceinline__ void apply(Octet<Precision>& dy, Octet<Precision>& x,
                                      const Octet<Precision>& up, const Real (&bias)[kOctet],
                                      const Factor& dropout_factor) {
  using V = Vector<Precision>;
  const Packed<Real> factor(dropout_factor.as<Real>());
#pragma unroll
  for (int i = 0; i < Octet<Precision>::count; ++i) {
    Real given[V::size], numbers[V::size], beside[V::size] = {};
    dy.vectors[i].unpack(given);
    x.vectors[i].unpack(numbers);
    if constexpr (Function::outputs == 2) up.vectors[i].unpack(beside);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      Packed<Real> number = pack(numbers + j);
      if constexpr (kBiased) number = number + pack(bias + i * V::size + j);
      const auto gradients =
          gradients_of<Function>(pack(given + j) * factor, number, pack(beside + j));
      unpack(gradients.first, given + j);
      unpack(gradients.second, numbers + j);
    }
    dy.vectors[i] = V::round(given);
    if constexpr (Function::outputs == 2) x.vectors[i] = V::round(numbers);
  }
}

// Octets in vectors.
template <class Function, class Precision, bool kBiased>
__global__ void __launch_bounds__(kOctetThreads, Plan<Function, Precision>::blocks)
    select_gradients(const __grid_constant__ DropoutBackwardOperands m,
                     const __grid_constant__ Octets octets) {
  constexpr int count = Plan<Function, Precision>::rows;
  constexpr bool kUp = Function::outputs == 2;
  const OctetRows<Precision, count> rows(octets);
  if (!rows.has(0)) return;
  Octet<Precision> dy[count], x[count], up[kUp ? count : 1];
  uint32_t mask[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) break;
    dy[i] = Octet<Precision>::load(rows.at(m.dy, i));
    x[i] = Octet<Precision>::load(rows.at(m.x, i));
    if constexpr (kUp) up[i] = Octet<Precision>::load(rows.at(m.up, i));
    mask[i] = m.mask[rows.octet(i)];
  }
  typename Precision::Real bias[kOctet];
  if constexpr (kBiased) rows.load_along(m.bias).unpack(bias);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (!rows.has(i)) return;
    apply<Function, Precision, kBiased>(dy[i], x[i], up[kUp ? i : 0], bias, m.factor);
    const KeptSigns kept = KeptSigns::of(mask[i]);
    kept.select(dy[i]);
    dy[i].store(rows.at(m.dx, i));
    if constexpr (kUp) {
      kept.select(x[i]);
      x[i].store(rows.at(m.dup, i));
    }
  }
}

// Any octets, element by element.
template <class Function, class Precision>
__global__ void __launch_bounds__(kOctetThreads)
    select_gradient_elements(const __grid_constant__ DropoutBackwardOperands m,
                             const __grid_constant__ Octets octets, int64_t first) {
  using T = StorageOf<Precision>;
  using S = Storage<Precision>;
  using Real = typename Precision::Real;
  const int64_t octet = first + int64_t{blockIdx.x} * kOctetThreads + threadIdx.x;
  if (octet >= octets.count()) return;
  const int64_t begin = octet * kOctet;
  const int left = static_cast<int>(min(octets.elements - begin, int64_t{kOctet}));
  const uint32_t mask = m.mask[octet];
  Cursor here(begin, octets.columns);
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const auto at = [&here](const Matrix& of) {
      return reinterpret_cast<T*>(tile_at(of, here.row, here.column).data);
    };
    Real x = S::load(*at(m.x)), up = 0;
    if constexpr (Function::outputs == 2) {
      up = S::load(*at(m.up));
    } else if (m.bias) {
      x += S::load(reinterpret_cast<const T*>(m.bias)[here.column]);
    }
    const Real dy = S::load(*at(m.dy)) * m.factor.as<Real>();
    const auto gradients = gradients_of<Function>(dy, x, up);
    const bool kept = mask >> i & 1;
    *at(m.dx) = kept ? S::store(gradients.first) : T(0);
    if constexpr (Function::outputs == 2) *at(m.dup) = kept ? S::store(gradients.second) : T(0);
    here.advance(octets.columns);
  }
}

template <class Function, class Precision>
Error launch_dropout_backward(Queue queue, const DropoutBackwardOperands& m) {
  constexpr bool kHasUp = Function::outputs == 2;
  constexpr auto of_elements = select_gradient_elements<Function, Precision>;
  constexpr auto alone = select_gradients<Function, Precision, false>;
  constexpr auto biased = select_gradients<Function, Precision, !kHasUp>;
  using Kernels = KernelSet<of_elements, alone, biased>;
  const auto are_vectors = [&m](const Matrix& of) {
    return has_vectors(of, m.rows, sizeof(StorageOf<Precision>));
  };
  const Octets octets =
      octets_of(m.rows, m.columns,
                has_vectors(m.bias) && are_vectors(m.dx) && are_vectors(m.dy) && are_vectors(m.x) &&
                    (!kHasUp || (are_vectors(m.dup) && are_vectors(m.up))));
  using M = DropoutBackwardOperands;
  return launch_octets<Kernels, Plan<Function, Precision>::rows>(
      queue, m, octets, {&M::dx, &M::dup, &M::dy, &M::x, &M::up}, m.bias ? biased : alone,
      of_elements);
}

template <template <class, class> class Function>
struct DropoutBackwardOf {
  template <class Gate, class Precision>
  struct Entry {
    static constexpr Error (*value)(Queue, const DropoutBackwardOperands&) =
        launch_dropout_backward<Function<Gate, Precision>, Precision>;
  };
};

}  // namespace gelu_kernels::cuda
