// The column sums of a gate's gradient.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// dx = dy·g'(x + bias).
template <class Gate, class Precision, class Part>
struct Gradient : NoRest {
  static constexpr int sums = 1, inputs = 2;
  using Real = typename Precision::Real;

  Real bias[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t, int64_t column, int left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(bias);
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(const Real (&of)[inputs][Part::size],
                                                             Rest, int j) const {
    const auto dx =
        AddBias<Backward<Gate, Precision>>::apply(pack(of[0] + j), pack(of[1] + j), pack(bias + j));
    return {dx, {dx}};
  }
};

BackwardColumnSums backward_column_sums(Gate gate, Dtype dtype) {
  return find<BackwardColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
