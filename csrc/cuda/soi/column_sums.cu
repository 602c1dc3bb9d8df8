// The column sums of the SOI map's gradient.
#include "csrc/cuda/column_sums.cuh"

namespace gelu_kernels::cuda {

// In place of a gate: dx = dy where the mask is 1, else 0.
struct Mask {};

template <class Precision, class Part>
struct Gradient<Mask, Precision, Part> : RowsOfMask<Part> {
  static constexpr int sums = 1, inputs = 1;
  using Real = typename Precision::Real;
  using typename RowsOfMask<Part>::Rest;

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : RowsOfMask<Part>(m, row, column, left) {}
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(const Real (&of)[inputs][Part::size],
                                                             const Rest& rest, int j) const {
    const Packed<Real> dx = rest.select(pack(of[0] + j), j);
    return {dx, {dx}};
  }
};

template <class, class Precision>
using OfMask = BackwardColumnSumsOf<Mask, Precision>;

BackwardColumnSums soi_backward_column_sums(Dtype dtype) { return find<OfMask>(Gate{}, dtype); }

}  // namespace gelu_kernels::cuda
