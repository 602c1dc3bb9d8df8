// The column sums of a gate's gradient.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// dx = dy·g'(x + bias).
template <class Gate, class Precision, class Part>
struct Gradient {
  static constexpr int sums = 1;
  using Real = typename Precision::Real;

  struct Row {
    Part x;
    Real numbers[Part::size];

    __device__ __forceinline__ void unpack() { x.unpack(numbers); }
  };

  const char* x_row;
  int64_t x_step, column_stride;
  int left;
  Real bias[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : x_row(tile_at(m.x, row, column).data),
        x_step(kWarps * m.x.row_stride),
        column_stride(m.x.column_stride),
        left(left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(bias);
  }
  __device__ __forceinline__ Row load(int i) const {
    return {Part::load(x_row + i * x_step, column_stride, left), {}};
  }
  // From the element j on.
  __device__ __forceinline__ Packed<Real> apply(Packed<Real> dy, const Row& row, int j) const {
    return AddBias<Backward<Gate, Precision>>::apply(dy, pack(row.numbers + j), pack(bias + j));
  }
  __device__ __forceinline__ void advance(int rows) { x_row += rows * x_step; }
};

BackwardColumnSums backward_column_sums(Gate gate, Dtype dtype) {
  return find<BackwardColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
