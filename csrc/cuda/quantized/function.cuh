// The functions whose results are quantised, over vectors.
#pragma once

#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/quantized/magnitudes.h"
#include "csrc/gates/pointwise.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cuda {

// y = x. It has no gate: the name takes the place of one.
template <class Gate, class Precision>
struct Cast {
  static constexpr int inputs = 1, outputs = 1;
};

template <class Function>
constexpr bool is_cast = false;
template <class Gate, class Precision>
constexpr bool is_cast<Cast<Gate, Precision>> = true;

// A gated linear unit in general, and without a limit, an offset and a weight.
template <class Function>
struct GluOf {
  static constexpr bool is_glu = false;
};
template <class Gate, class Precision>
struct GluOf<GluRowsForward<Gate, Precision>> {
  static constexpr bool is_glu = true;
  using Plain = GluForward<Gate, Precision>;
};
template <class Gate, class Precision>
struct GluOf<GluRowsBackward<Gate, Precision>> {
  static constexpr bool is_glu = true;
  using Plain = GluBackward<Gate, Precision>;
};
template <class Function>
constexpr bool is_glu = GluOf<Function>::is_glu;

// The numbers of such a unit.
struct QuantizedNumbers : GluNumbers<float> {
  bool are_plain;

  explicit QuantizedNumbers(const QuantizedOperands& m)
      : GluNumbers<float>{static_cast<float>(m.limit), static_cast<float>(m.up_offset), 1},
        are_plain(!m.weight && limit > Format<float>::largest && bits(up_offset) == 1u << 31) {}
};

// As RowMap has it. A row of a gated linear unit has a weight.
template <class Function, class Precision, int kColumns>
struct QuantizedFunction {
  using Real = typename Precision::Real;
  using V = Vector<Precision>;
  using Along = Real[V::size];
  static constexpr int inputs = Function::inputs - kColumns, outputs = Function::outputs;

  static __device__ __forceinline__ void apply(V (&out)[outputs], const V (&in)[inputs],
                                               const Along& along,
                                               const QuantizedNumbers& numbers) {
    constexpr auto each = std::make_index_sequence<inputs>();
    if constexpr (is_cast<Function>) {
      out[0] = in[0];
    } else if constexpr (is_glu<Function>) {
      apply_glu(out, in, numbers, each);
    } else {
      using Map = RowMap<Function, Precision, kColumns>;
      Real of_map[1][V::size];
#pragma unroll
      for (int j = 0; j < V::size; ++j) of_map[0][j] = along[j];
      Map::apply(out, in, of_map, each, std::make_index_sequence<kColumns>());
    }
  }

 private:
  // All threads go the same way.
  template <size_t... k>
  static __device__ __forceinline__ void apply_glu(V (&out)[outputs], const V (&in)[inputs],
                                                   const QuantizedNumbers& numbers,
                                                   std::index_sequence<k...>) {
    Real from[inputs][V::size], to[outputs][V::size];
    (in[k].unpack(from[k]), ...);
    if (numbers.are_plain) {
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        const auto result = GluOf<Function>::Plain::apply(pack(from[k] + j)...);
        if constexpr (outputs == 2) {
          unpack(result.first, to[0] + j);
          unpack(result.second, to[1] + j);
        } else {
          unpack(result, to[0] + j);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < V::size; j += kPacked<Real>) {
        const auto result = Function::apply(numbers, pack(from[k] + j)...);
        if constexpr (outputs == 2) {
          unpack(result.dx, to[0] + j);
          unpack(result.dup, to[1] + j);
        } else {
          unpack(result, to[0] + j);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < outputs; ++r) out[r] = V::round(to[r]);
  }
};

}  // namespace gelu_kernels::cuda
