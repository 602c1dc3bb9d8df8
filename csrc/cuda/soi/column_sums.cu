// The column sums of the SOI map's gradient.
#include "csrc/cuda/column_sums.cuh"

namespace gelu_kernels::cuda {

// In place of a gate: dx = dy where the mask is 1, else 0.
struct Mask {};

template <class Precision, class Part>
struct Gradient<Mask, Precision, Part> {
  static constexpr int sums = 1;
  using Real = typename Precision::Real;

  struct Row {
    // Elements that are spaced have a byte each; others share one, as there are no more than eight
    // and their number divides the length of the row.
    uint8_t bytes[Part::spacing == 1 ? 1 : Part::size];
    int first_bit;

    __device__ __forceinline__ void unpack() {}
  };

  const uint8_t* mask;
  int64_t bit, step;
  int left;

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : mask(m.mask), bit(row * m.columns + column), step(kWarps * m.columns), left(left) {}
  __device__ __forceinline__ Row load(int i) const {
    const int64_t first = bit + i * step;
    Row row = {};
    row.first_bit = first % 8;
    if constexpr (Part::spacing == 1) {
      row.bytes[0] = mask[first / 8];
    } else {
#pragma unroll
      for (int j = 0; j < Part::size; ++j) {
        if (j * Part::spacing < left) row.bytes[j] = mask[first / 8 + j * (Part::spacing / 8)];
      }
    }
    return row;
  }
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(Packed<Real> dy, const Row& row,
                                                             int j) const {
    Real dx[kPacked<Real>];
    unpack(dy, dx);
#pragma unroll
    for (int k = 0; k < kPacked<Real>; ++k) {
      const uint32_t bits = Part::spacing == 1 ? row.bytes[0] >> (j + k) : row.bytes[j + k];
      dx[k] = bits >> row.first_bit & 1 ? dx[k] : Real(0);
    }
    return {pack(dx), {pack(dx)}};
  }
  __device__ __forceinline__ void advance(int rows) { bit += rows * step; }
};

template <class, class Precision>
using OfMask = BackwardColumnSumsOf<Mask, Precision>;

BackwardColumnSums soi_backward_column_sums(Dtype dtype) { return find<OfMask>(Gate{}, dtype); }

}  // namespace gelu_kernels::cuda
