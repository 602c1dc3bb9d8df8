// The CPU kernels: loops over memory, built once for each instruction set from loops.cpp. They know
// nothing of torch; csrc/ops/cpu.cpp brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"

namespace gelu_kernels::cpu {

// out[i][j] = f(in0[i][j], ...) for i < rows, j < columns. data: the outputs, then the inputs.
// strides, in bytes: one for each operand along a row, then one for each from row to row.
using Map = void (*)(char** data, const int64_t* strides, int64_t columns, int64_t rows);

// At most this many columns are handed to one backward_column_sums.
constexpr int64_t kColumnTile = 512;

// dx = dy·g'(x + bias) on a tile, and partial[j] = the sum of column j of the unrounded dx, in
// float (double for float64).
using BackwardColumnSums = void (*)(Matrix dx, Matrix dy, Matrix x, const char* bias, void* partial,
                                    int64_t columns, int64_t rows);

// dbias[j] = the sum over blocks of partial[block·stride + j], rounded to the dtype of dbias. The
// order of both sums is that of csrc/gates/column_sums.h.
using AddPartialSums = void (*)(const void* partial, int64_t stride, int64_t blocks, char* dbias,
                                int64_t columns);

// The loops of one gate in one dtype. With a bias, it is the last operand.
struct Loops {
  Map forward;               // y; x
  Map forward_bias;          // y; x, bias
  Map backward;              // dx; dy, x
  Map backward_bias;         // dx; dy, x, bias
  Map double_backward;       // dx; ddx, dy, x
  Map double_backward_bias;  // dx; ddx, dy, x, bias
  Map glu_forward;           // y; x, up
  Map glu_backward;          // dx, dup; dy, x, up
  BackwardColumnSums backward_column_sums;
  AddPartialSums add_partial_sums;
};

// In the best instruction set that this processor has, for a call with so many elements.
const Loops& loops(Gate gate, Dtype dtype, int64_t elements);

// The instruction sets that were built, best first, separated by spaces; and the one in use.
// GELU_KERNELS_CPU_CAPABILITY=default|avx2|avx512 in the environment asks for another, at any size.
const char* built_capabilities();
const char* capability();

}  // namespace gelu_kernels::cpu
