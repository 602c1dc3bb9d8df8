// The CPU loops of the SOI map, built once for each instruction set from soi_loops.cpp. They know
// nothing of torch; csrc/ops/soi.cpp brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/cpu/loops.h"
#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"
#include "csrc/random/philox.h"

namespace gelu_kernels::cpu {

// The elements of a tensor in their logical, row-major order, a number of rows of so many columns.
struct Elements {
  Matrix matrix;
  int64_t columns;
};

// A loop over elements begins at a multiple of this many, so that no two write to the same byte of
// a mask. The bit of element i is bit i % 8 of byte i / 8.
constexpr int64_t kMaskBlock = 512;

// y = m (x + bias) and the mask of m, for the elements from begin to end. Without a bias, its
// matrix.data is null. Unused bits of the last byte become 0.
using SoiForward = void (*)(Elements y, uint8_t* mask, Elements x, Elements bias, int64_t begin,
                            int64_t end, uint64_t seed, GlobalIndex index);

// dx = dy where the mask is 1, else 0.
using SoiBackward = void (*)(Elements dx, Elements dy, const uint8_t* mask, int64_t begin,
                             int64_t end);

// The same on a tile of at most kColumnTile columns, whose row i has its mask from bit
// first_bit + i·row_bits on, and the sums of its columns as in BackwardColumnSums.
using SoiBackwardColumnSums = void (*)(Matrix dx, Matrix dy, const uint8_t* mask, int64_t first_bit,
                                       int64_t row_bits, void* partial, int64_t columns,
                                       int64_t rows);

// For how many of the 2^32 random words, which are the least, bernoulli() finds -|x| in the tail.
using CountInTail = void (*)(uint32_t* counts, const float* x, int64_t n);

struct SoiLoops {
  SoiForward forward;
  SoiBackward backward;
  SoiBackwardColumnSums backward_column_sums;
  CountInTail count_in_tail;
};

const SoiLoops& soi_loops(Gate gate, Dtype dtype, int64_t elements);

}  // namespace gelu_kernels::cpu
