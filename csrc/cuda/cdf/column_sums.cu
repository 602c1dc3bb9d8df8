// The gradients of a gate with a location and a scale.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/cdf.h"

namespace gelu_kernels::cuda {

template <class Gate>
struct WithLocationAndScale {};

template <class Function, class Real>
struct CdfTerms {
  Real dx, of_loc, of_scale;

  template <class Sums>
  __device__ __forceinline__ void add_to(Sums& sum, int j) const {
    constexpr int size = sizeof(Real) / sizeof(sum[0][0]);
    std::decay_t<decltype(sum[0][0])> loc[size], scale[size];
    unpack(of_loc, loc);
    unpack(of_scale, scale);
#pragma unroll
    for (int k = 0; k < size; ++k) Function::add(loc[k], scale[k], sum[0][j + k], sum[1][j + k]);
  }
};

template <class Gate, class Precision, class Part>
struct Gradient<WithLocationAndScale<Gate>, Precision, Part> : NoRest {
  static constexpr int sums = 2, inputs = 2;
  using Real = typename Precision::Real;
  using Function = CdfBackward<Gate, Precision>;

  Real loc[Part::size], extra[Part::size], inverse[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t, int64_t column, int left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(loc);
    Part::load(m.parameters[1] + column * size, size, left).unpack(extra);
#pragma unroll
    for (int j = 0; j < Part::size; ++j) {
      const Column<Real> own = Function::column(loc[j], extra[j]);
      extra[j] = own.extra;
      inverse[j] = own.inverse;
    }
  }
  // From the element j on.
  __device__ __forceinline__ CdfTerms<Function, Packed<Real>> apply(
      const Real (&of)[inputs][Part::size], Rest, int j) const {
    const auto found = Function::apply(pack(of[0] + j), pack(of[1] + j), pack(loc + j),
                                       pack(extra + j), pack(inverse + j));
    return {found.dx, found.of_loc, found.of_scale};
  }
  __device__ __forceinline__ void finish(Real (&sum_of_scale)[Part::size]) const {
#pragma unroll
    for (int j = 0; j < Part::size; ++j) {
      sum_of_scale[j] = Function::finished(sum_of_scale[j], extra[j]);
    }
  }
};

template <class Gate, class Precision>
using CdfColumnSumsOf = BackwardColumnSumsOf<WithLocationAndScale<Gate>, Precision>;

BackwardColumnSums cdf_column_sums(Gate gate, Dtype dtype) {
  return find<CdfColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
