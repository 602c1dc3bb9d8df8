// The column sums of a gradient by a coded derivative.
#include "csrc/cuda/coded/octet_codes.h"
#include "csrc/cuda/column_sums.cuh"

namespace gelu_kernels::cuda {

// In place of a gate: dx = dy times the coded derivative.
struct Code {};

template <class Precision, class Part>
struct Gradient<Code, Precision, Part> {
  static constexpr int sums = 1;
  using Real = typename Precision::Real;

  struct Row {
    uint8_t codes[Part::size];

    __device__ __forceinline__ void unpack() {}
  };

  const uint8_t* code;
  const Decoder decoder;
  int64_t element, step;
  int left;

  __device__ __forceinline__ Gradient(const ColumnSums& m, int64_t row, int64_t column, int left)
      : code(m.code),
        decoder{m.codebook, m.factor},
        element(row * m.columns + column),
        step(kWarps * m.columns),
        left(left) {}
  __device__ __forceinline__ Row load(int i) const {
    const int64_t first = element + i * step;
    const int bits = decoder.codebook.bits;
    Row row = {};
    if constexpr (Part::spacing == 1) {
      const uint64_t codes = load_codes<Part::size>(code, first, bits);
#pragma unroll
      for (int j = 0; j < Part::size; ++j) row.codes[j] = code_of(codes, j);
    } else {
#pragma unroll
      for (int j = 0; j < Part::size; ++j) {
        if (j * Part::spacing < left) {
          row.codes[j] = load_code(code, first + j * Part::spacing, bits);
        }
      }
    }
    return row;
  }
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(Packed<Real> dy, const Row& row,
                                                             int j) const {
    Real dx[kPacked<Real>];
    unpack(dy, dx);
#pragma unroll
    for (int k = 0; k < kPacked<Real>; ++k) dx[k] *= decoder.factor<Real>(row.codes[j + k]);
    return {pack(dx), {pack(dx)}};
  }
  __device__ __forceinline__ void advance(int rows) { element += rows * step; }
};

template <class, class Precision>
using OfCode = BackwardColumnSumsOf<Code, Precision>;

BackwardColumnSums coded_backward_column_sums(Dtype dtype) { return find<OfCode>(Gate{}, dtype); }

}  // namespace gelu_kernels::cuda
