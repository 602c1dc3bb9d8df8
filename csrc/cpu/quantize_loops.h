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
  int64_t all_columns;  // of y
  RowGroup group;       // of the tile's rows
};

struct QuantizeLoops {
  // Along the rows: the columns are all of them for RowWise without `amax`, whole blocks for
  // BlockWise, and a multiple of 16. Returns the bits of the largest magnitude for TensorWise.
  uint32_t (*rows)(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile);
  // Along the columns: a tile begins with a block, its rows are whole blocks but at the end of the
  // group, at most kMostQuantizedRows, and the columns a multiple of 16.
  void (*columns)(const Quantization& q, const QuantizedMatrix& to, const QuantizeTile& tile);
  // Adds the tile to the largest magnitudes of RowWise.
  void (*add_amax)(const QuantizedResult& to, const QuantizeTile& tile);
};

// A column of this many bytes fills two cache lines.
constexpr int64_t kMostQuantizedRows = 128;

const QuantizeLoops& quantize_loops(Dtype dtype, bool is_e5m2, int64_t elements);

}  // namespace gelu_kernels::cpu
