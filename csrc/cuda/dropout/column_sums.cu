// The column sums of a gate's gradient with dropout.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

template <class Gate>
struct WithDropout {};

// dx = m dy k g'(x + bias)
template <class Gate, class Precision, class Part>
struct Gradient<WithDropout<Gate>, Precision, Part> {
  static constexpr int sums = 1, vectors = 2;
  using Real = typename Precision::Real;
  using X = RowsOfX<Precision, Part>;
  using Mask = RowsOfMask<Part>;

  struct Row {
    typename X::Row x;
    typename Mask::Row mask;
  };
  struct Numbers : X::Numbers {
    typename Mask::Row mask;
  };

  X x;
  Mask mask;
  Real bias[Part::size], factor;

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : x(tile_at(m.x, row, column), left),
        mask(m, row, column, left),
        factor(m.factor.as<Real>()) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(bias);
  }
  __device__ __forceinline__ Row load() { return {x.load(), mask.load()}; }
  static __device__ __forceinline__ Numbers numbers_of(const Row& row) {
    return {X::numbers_of(row.x), row.mask};
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(Packed<Real> dy, const Numbers& row,
                                                             int j) const {
    const auto dx = AddBias<Backward<Gate, Precision>>::apply(dy * Packed<Real>(factor),
                                                              pack(row.x + j), pack(bias + j));
    const Packed<Real> kept = row.mask.select(dx, j);
    return {kept, {kept}};
  }
};

template <class Gate, class Precision>
using DropoutColumnSumsOf = BackwardColumnSumsOf<WithDropout<Gate>, Precision>;

BackwardColumnSums dropout_column_sums(Gate gate, Dtype dtype) {
  return find<DropoutColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
