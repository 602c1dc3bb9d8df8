// The CPU kernels: loops over memory, built once for each instruction set from loops.cpp. They know
// nothing of torch; csrc/ops/device/cpu.h brings the tensors and the threads.
#pragma once

#include <cstdint>

#include "csrc/gates/column_sums.h"
#include "csrc/gates/gates.h"
#include "csrc/gates/passes.h"

namespace gelu_kernels::cpu {

// out[i][j] = f(in0[i][j], ...) for i < rows, j < columns. data: the outputs, then the inputs.
// strides, in bytes: one for each operand along a row, then one for each from row to row.
using Map = void (*)(char** data, const int64_t* strides, int64_t columns, int64_t rows);

// At most this many columns are handed to one backward_column_sums.
constexpr int64_t kColumnTile = 512;

// Loops over elements with a mask begin at multiples of this, so that no two write the same byte of
// the mask.
constexpr int64_t kMaskBlock = 512;

// Writes dx and the partial sums of a tile of columns by rows, from a row and a column on. The
// partial sums go to `place`.
using BackwardColumnSums = void (*)(const ColumnSums& m, int64_t row, int64_t column, int64_t place,
                                    int64_t columns, int64_t rows);

// Adds up the partial sums of `columns` columns, from `column` on. csrc/gates/column_sums.h defines
// the order of both sums.
using AddPartialSums = void (*)(const PartialSums& m, int64_t column, int64_t columns);

// A gate's value and derivative of x + bias, before they are rounded: in double for float64, else
// in float. On n consecutive elements, a multiple of kVector; what a function does not compute is
// null.
using Evaluate = void (*)(int64_t n, void* value, void* derivative, const void* x,
                          const void* bias);

// A pass without a bias, and with one as the last operand.
struct Maps {
  Map plain, biased;
};

// The loops of one gate in one dtype.
struct Loops {
  Passes<Maps> passes;
  Evaluate value, derivative, value_and_derivative, value_and_derivative_to_encode;
  BackwardColumnSums backward_column_sums;  // with a bias
  BackwardColumnSums cdf_column_sums;       // with a location and a scale
  AddPartialSums add_partial_sums;
};

// The loops in this processor's best instruction set, for a call with this many elements.
const Loops& loops(Gate gate, Dtype dtype, int64_t elements);

// The instruction sets that were built, best first, separated by spaces; and the one in use.
// GELU_KERNELS_CPU_CAPABILITY=default|avx2|avx512 in the environment asks for another, at any size.
const char* built_capabilities();
const char* capability();

}  // namespace gelu_kernels::cpu
