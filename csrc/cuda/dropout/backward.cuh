// The gradients of dropout: m dy k selects and scales elements of dy for the gradients of a gate,
// or a gated linear unit.
#pragma once

#include "csrc/cuda/dropout/plan.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/octet.h"
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

// Any octet, element by element.
template <class Function, class Precision>
__device__ __forceinline__ void select_elements(const DropoutBackwardOperands& m,
                                                const Octets& octets, int64_t octet) {
  using T = StorageOf<Precision>;
  using S = Storage<Precision>;
  using Real = typename Precision::Real;
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
using Plan = DropoutPlan<Precision, Function::inputs>;

template <class Function, class Precision>
__global__ void __launch_bounds__(kThreads, Plan<Function, Precision>::blocks)
    select_gradients(const __grid_constant__ DropoutBackwardOperands m,
                     const __grid_constant__ Octets octets) {
  using T = StorageOf<Precision>;
  using V = Vector<Precision>;
  using Real = typename Precision::Real;
  constexpr int count = Plan<Function, Precision>::octets;
  constexpr bool kUp = Function::outputs == 2;
  const int64_t first = int64_t{blockIdx.x} * (count * kThreads) + threadIdx.x;
  if (first + (count - 1) * kThreads >= octets.in_vectors) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int64_t octet = first + i * kThreads;
      if (octet < octets.count()) select_elements<Function, Precision>(m, octets, octet);
    }
    return;
  }
  Octet<Precision> dy[count], x[count], up[kUp ? count : 1];
  uint32_t mask[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kThreads;
    dy[i] = Octet<Precision>::load(octets.at<T>(m.dy, octet));
    x[i] = Octet<Precision>::load(octets.at<T>(m.x, octet));
    if constexpr (kUp) up[i] = Octet<Precision>::load(octets.at<T>(m.up, octet));
    mask[i] = m.mask[octet];
  }
  const Packed<Real> factor(m.factor.as<Real>());
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t octet = static_cast<uint32_t>(first) + i * kThreads;
#pragma unroll
    for (int v = 0; v < Octet<Precision>::count; ++v) {
      Real given[V::size], numbers[V::size], beside[V::size] = {};
      dy[i].vectors[v].unpack(given);
      x[i].vectors[v].unpack(numbers);
      if constexpr (kUp) {
        up[i].vectors[v].unpack(beside);
      } else if (m.bias) {
        const char* bias = octets.at<T>({const_cast<char*>(m.bias), 0, 0}, octet);
        V::load(reinterpret_cast<const T*>(bias) + v * V::size).unpack(beside);
#pragma unroll
        for (int j = 0; j < V::size; j += kPacked<Real>) {
          unpack(pack(numbers + j) + pack(beside + j), numbers + j);
        }
      }
      bool kept[V::size];
#pragma unroll
      for (int j = 0; j < V::size; ++j) kept[j] = mask[i] >> (v * V::size + j) & 1;
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        const auto gradients =
            gradients_of<Function>(pack(given + j) * factor, pack(numbers + j), pack(beside + j));
        unpack(gradients.first, given + j);
        unpack(gradients.second, numbers + j);
      }
      dy[i].vectors[v] = V::round(given).select(kept);
      if constexpr (kUp) x[i].vectors[v] = V::round(numbers).select(kept);
    }
    dy[i].store(octets.at<T>(m.dx, octet));
    if constexpr (kUp) x[i].store(octets.at<T>(m.dup, octet));
  }
}

template <class Function, class Precision>
Error launch_dropout_backward(Queue queue, const DropoutBackwardOperands& m) {
  using P = Plan<Function, Precision>;
  constexpr auto kernel = select_gradients<Function, Precision>;
  const auto are_vectors = [&m](const Matrix& of) { return has_vectors(of, m.rows, P::size); };
  const bool vectors = has_vectors(m.bias) && are_vectors(m.dx) && are_vectors(m.dy) &&
                       are_vectors(m.x) &&
                       (Function::outputs == 1 || (are_vectors(m.dup) && are_vectors(m.up)));
  const Octets octets = octets_of(m.rows, m.columns, vectors);
  constexpr int64_t block = P::elements;
  return launch<KernelSet<kernel>>(queue, kernel, (octets.elements + block - 1) / block, kThreads,
                                   m, octets);
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
