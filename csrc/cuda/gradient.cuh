// What a lane of the column sums knows of dx, beside dy: it loads this for the rows ahead, and then
// has their dx.
#pragma once

#include "csrc/cuda/kernels.h"
#include "csrc/cuda/packed.h"
#include "csrc/cuda/part.h"
#include "csrc/gates/pointwise.h"

namespace gelu_kernels::cuda {

// dx = dy·g'(x + bias).
template <class Gate, class Precision, class Part>
struct Gradient {
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
    Part::load(m.bias + column * size, size, left).unpack(bias);
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

// In place of a gate: dx = dy where the mask is 1, else 0.
struct Mask {};

template <class Precision, class Part>
struct Gradient<Mask, Precision, Part> {
  using Real = typename Precision::Real;

  struct Row {
    // Elements that are spaced have a byte each; others share one, as there are no more than eight
    // and their number divides that of the row.
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
  __device__ __forceinline__ Packed<Real> apply(Packed<Real> dy, const Row& row, int j) const {
    Real dx[kPacked<Real>];
    unpack(dy, dx);
#pragma unroll
    for (int k = 0; k < kPacked<Real>; ++k) {
      const uint32_t bits = Part::spacing == 1 ? row.bytes[0] >> (j + k) : row.bytes[j + k];
      dx[k] = bits >> row.first_bit & 1 ? dx[k] : Real(0);
    }
    return pack(dx);
  }
  __device__ __forceinline__ void advance(int rows) { bit += rows * step; }
};

}  // namespace gelu_kernels::cuda
