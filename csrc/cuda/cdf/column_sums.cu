// The gradients of a gate with a location and a scale.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/cdf.h"

namespace gelu_kernels::cuda {

template <class Gate>
struct WithLocationAndScale {};

template <class Gate, class Precision, class Part>
struct Gradient<WithLocationAndScale<Gate>, Precision, Part> : RowsOfX<Precision, Part> {
  static constexpr int sums = 2;
  using Real = typename Precision::Real;
  using typename RowsOfX<Precision, Part>::Numbers;

  Real loc[Part::size], scale[Part::size], inverse[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : RowsOfX<Precision, Part>(tile_at(m.x, row, column), left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(loc);
    Part::load(m.parameters[1] + column * size, size, left).unpack(scale);
#pragma unroll
    for (int j = 0; j < Part::size; ++j) {
      scale[j] = bounded(scale[j]);
      inverse[j] = inverse_of(scale[j]);
    }
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(Packed<Real> dy, const Numbers& row,
                                                             int j) const {
    const auto of = cdf_gradients<Gate, Precision>(dy, pack(row.x + j), pack(loc + j),
                                                   pack(scale + j), pack(inverse + j));
    return {of.dx, {of.dloc, of.dscale}};
  }
};

template <class Gate, class Precision>
using CdfColumnSumsOf = BackwardColumnSumsOf<WithLocationAndScale<Gate>, Precision>;

BackwardColumnSums cdf_column_sums(Gate gate, Dtype dtype) {
  return find<CdfColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
