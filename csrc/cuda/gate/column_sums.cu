// The column sums of a gate's gradient.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// dx = dy·g'(x + bias).
template <class Gate, class Precision, class Part>
struct Gradient : RowsOfX<Precision, Part> {
  static constexpr int sums = 1;
  using Real = typename Precision::Real;
  using typename RowsOfX<Precision, Part>::Numbers;

  Real bias[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : RowsOfX<Precision, Part>(tile_at(m.x, row, column), left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(bias);
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(Packed<Real> dy, const Numbers& row,
                                                             int j) const {
    const auto dx = AddBias<Backward<Gate, Precision>>::apply(dy, pack(row.x + j), pack(bias + j));
    return {dx, {dx}};
  }
};

BackwardColumnSums backward_column_sums(Gate gate, Dtype dtype) {
  return find<BackwardColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
