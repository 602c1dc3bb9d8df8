// The gradients of a gate with a location and a scale.
#include "csrc/cuda/column_sums.cuh"
#include "csrc/gates/cdf.h"

namespace gelu_kernels::cuda {

template <class Gate>
struct WithLocationAndScale {};

template <class Gate, class Precision, class Part>
struct Gradient<WithLocationAndScale<Gate>, Precision, Part> {
  static constexpr int sums = 2;
  using Real = typename Precision::Real;

  struct Row {
    Part x;
    Real numbers[Part::size];

    __device__ __forceinline__ void unpack() { x.unpack(numbers); }
  };

  const char* x_row;
  int64_t x_step, column_stride;
  int left;
  Real loc[Part::size], scale[Part::size], inverse[Part::size];

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : x_row(tile_at(m.x, row, column).data),
        x_step(kWarps * m.x.row_stride),
        column_stride(m.x.column_stride),
        left(left) {
    constexpr int size = sizeof(StorageOf<Precision>);
    Part::load(m.parameters[0] + column * size, size, left).unpack(loc);
    Part::load(m.parameters[1] + column * size, size, left).unpack(scale);
#pragma unroll
    for (int j = 0; j < Part::size; ++j) {
      scale[j] = bounded(scale[j]);
      inverse[j] = inverse_of(scale[j]);
    }
  }
  __device__ __forceinline__ Row load(int i) const {
    return {Part::load(x_row + i * x_step, column_stride, left), {}};
  }
  // From the element j on.
  __device__ __forceinline__ CdfGradients<Packed<Real>> apply(Packed<Real> dy, const Row& row,
                                                              int j) const {
    return cdf_gradients<Gate, Precision>(dy, pack(row.numbers + j), pack(loc + j), pack(scale + j),
                                          pack(inverse + j));
  }
  __device__ __forceinline__ void advance(int rows) { x_row += rows * x_step; }
};

template <class Gate, class Precision>
using CdfColumnSumsOf = BackwardColumnSumsOf<WithLocationAndScale<Gate>, Precision>;

BackwardColumnSums cdf_column_sums(Gate gate, Dtype dtype) {
  return find<CdfColumnSumsOf>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
