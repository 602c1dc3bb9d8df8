// The column sums of a gradient by a coded derivative.
#include "csrc/cuda/coded/octet_codes.h"
#include "csrc/cuda/column_sums.cuh"

namespace gelu_kernels::cuda {

// In place of a gate: dx = dy times the coded derivative.
struct Code {};

template <class Precision, class Part>
struct Gradient<Code, Precision, Part> {
  static constexpr int sums = 1, inputs = 1;
  using Real = typename Precision::Real;

  // As the codes are in memory: consecutive ones in a word, others in a byte each.
  struct Rest {
    uint64_t word;
    uint8_t bytes[Part::spacing == 1 ? 1 : Part::size];
    bool is_odd;  // the first element
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
  __device__ __forceinline__ Rest load_rest() {
    const int bits = decoder.codebook.bits;
    Rest row = {};
    row.is_odd = element % 2;
    if constexpr (Part::spacing == 1) {
      row.word = load_packed_codes<Part::size>(code, element, bits);
    } else {
#pragma unroll
      for (int j = 0; j < Part::size; ++j) {
        const int64_t at = element + j * Part::spacing;
        if (j * Part::spacing < left) row.bytes[j] = code[bits == 8 ? at : at / 2];
      }
    }
    element += step;
    return row;
  }
  // From the element j on.
  __device__ __forceinline__ Terms<Packed<Real>, sums> apply(const Real (&of)[inputs][Part::size],
                                                             const Rest& rest, int j) const {
    const int bits = decoder.codebook.bits;
    Real dx[kPacked<Real>];
#pragma unroll
    for (int k = 0; k < kPacked<Real>; ++k) {
      const uint8_t own = Part::spacing == 1 ? code_of(unpack_codes(rest.word, bits), j + k)
                                             : unpack_code(rest.bytes[j + k], rest.is_odd, bits);
      dx[k] = of[0][j + k] * decoder.factor<Real>(own);
    }
    return {pack(dx), {pack(dx)}};
  }
};

template <class, class Precision>
using OfCode = BackwardColumnSumsOf<Code, Precision>;

BackwardColumnSums coded_backward_column_sums(Dtype dtype) { return find<OfCode>(Gate{}, dtype); }

}  // namespace gelu_kernels::cuda
