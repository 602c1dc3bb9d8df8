// The column sums of a gate's gradient with dropout.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

template <class Gate>
struct WithDropout {};

// dx = m dy k g'(x + bias)
template <class Gate, class Precision, class Part>
struct Gradient<WithDropout<Gate>, Precision, Part> : RowsOfMask<Part> {
  static constexpr int sums = 1, inputs = 2;
  using Real = typename Precision::Real;
  using typename RowsOfMask<Part>::Rest;

  Real bias[Part::size], factor;

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : RowsOfMask<Part>(m, row, column, left), factor(m.factor.as<Real>()) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(bias);
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(const Real (&of)[inputs][Part::size],
                                                             const Rest& rest, int j) const {
    const auto dx = AddBias<Backward<Gate, Precision>>::apply(
        pack(of[0] + j) * Packed<Real>(factor), pack(of[1] + j), pack(bias + j));
    const Packed<Real> kept = rest.select(dx, j);
    return {kept, {kept}};
  }
};

template <class Gate, class Precision>
using DropoutColumnSumsOf = BackwardColumnSumsOf<WithDropout<Gate>, Precision>;

BackwardColumnSums dropout_column_sums(Gate gate, Dtype dtype) {
  return find<DropoutColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
