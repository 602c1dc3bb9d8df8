// The CPU loops that quantise: they read a tile of a gate's results while it is still in the cache
// and write it in eight bits.
#pragma once

#include "csrc/gates/gates.h"
#include "csrc/gates/quantized.h"

namespace gelu_kernels::cpu {

// A tile of y in memory, as rows of consecutive columns, and its position in y.
struct QuantizeTile {
  const char* y;
  int64_t row, column, rows, columns;
};

struct QuantizeLoops {
  // Along the rows: the columns are all of them for RowWise, whole blocks for BlockWise, and a
  // multiple of 16. Returns the bits of the largest magnitude for TensorWise.
  uint32_t (*rows)(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile);
  // Along the columns: the rows are whole blocks, at most kMostQuantizedRows, and the columns a
  // multiple of 32.
  void (*columns)(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile);
};

// A column of this many bytes fills two cache lines.
constexpr int64_t kMostQuantizedRows = 128;

const QuantizeLoops& quantize_loops(Dtype dtype, bool is_e5m2, int64_t elements);

}  // namespace gelu_kernels::cpu
