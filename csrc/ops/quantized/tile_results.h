// The results of a pass in a tile, before they are quantised, on the CPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "csrc/cpu/quantize_loops.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/glu/kernels.h"

namespace gelu_kernels {

// Writes them one after the other to the tile's memory.
template <int outputs>
class TileResults {
 public:
  TileResults(Gate gate, const at::Tensor& x, const QuantizedOperands& m,
              cpu::Maps Cpu::Passes::* pass)
      : m_(m),
        size_(static_cast<int64_t>(x.element_size())),
        pass_(pass),
        loops_(cpu::loops(gate, dtype_of(x), m.rows * m.columns)),
        glu_(cpu::glu_loops(gate, dtype_of(x), m.rows * m.columns)) {}

  void compute(const cpu::QuantizeTile& tile, int64_t bytes) const {
    const bool is_plain =
        !m_.weight && m_.limit == std::numeric_limits<double>::infinity() && m_.up_offset == 0;
    if (m_.partials) {
      sum(tile);
    } else if (!pass_) {
      copy(tile);
    } else if (is_plain) {
      map(tile, bytes);
    } else {
      map_rows(tile, bytes);
    }
  }

 private:
  Matrix result(const cpu::QuantizeTile& tile, int64_t bytes, int k) const {
    return {const_cast<char*>(tile.y) + k * bytes, size_, tile.columns * size_};
  }
  Matrix input(const cpu::QuantizeTile& tile, int k) const {
    return tile_at(m_.in[k], tile.row, tile.column);
  }

  void map(const cpu::QuantizeTile& tile, int64_t bytes) const {
    constexpr size_t most = outputs + kMaxQuantizedInputs + 1;
    char* data[most];
    int64_t along_row[most], from_row_to_row[most], strides[2 * most];
    size_t k = 0;
    const auto add = [&](const Matrix& matrix) {
      data[k] = matrix.data;
      along_row[k] = matrix.column_stride;
      from_row_to_row[k++] = matrix.row_stride;
    };
    for (int i = 0; i < outputs; ++i) add(result(tile, bytes, i));
    for (int i = 0; i < kMaxQuantizedInputs && m_.in[i].data; ++i) add(input(tile, i));
    if (m_.bias) add({const_cast<char*>(m_.bias) + tile.column * size_, size_, 0});
    std::copy_n(along_row, k, strides);
    std::copy_n(from_row_to_row, k, strides + k);
    const cpu::Maps& maps = loops_.passes.*pass_;
    (m_.bias ? maps.biased : maps.plain)(data, strides, tile.columns, tile.rows);
  }

  // The general gated linear unit.
  void map_rows(const cpu::QuantizeTile& tile, int64_t bytes) const {
    GluRows rows = {};
    for (int k = 0; k < outputs; ++k) rows.operands[k] = result(tile, bytes, k);
    for (int k = 0; k < outputs + 1; ++k) rows.operands[outputs + k] = input(tile, k);
    rows.weight = m_.weight ? m_.weight + tile.row * size_ : nullptr;
    rows.limit = m_.limit;
    rows.up_offset = m_.up_offset;
    const cpu::GluRowLoop loop = outputs == 1 ? glu_.forward : glu_.backward;
    for (int64_t i = 0; i < tile.rows; ++i) loop(rows, i, 0, tile.columns);
  }

  // Whole blocks of rows, for the sums of their columns.
  void sum(const cpu::QuantizeTile& tile) const {
    const int64_t block_rows = RowBlocks(m_.rows).block_rows;
    const ColumnSums sums{result(tile, 0, 0),
                          input(tile, 0),
                          input(tile, 1),
                          {m_.bias + tile.column * size_},
                          nullptr,
                          {m_.partials},
                          /*sums=*/{},
                          m_.rows,
                          m_.columns};
    for (int64_t row = 0; row < tile.rows; row += block_rows) {
      const int64_t block = (tile.row + row) / block_rows;
      loops_.backward_column_sums(sums, row, 0, block * m_.columns + tile.column, tile.columns,
                                  std::min(tile.rows - row, block_rows));
    }
  }

  void copy(const cpu::QuantizeTile& tile) const {
    const Matrix from = input(tile, 0), to = result(tile, 0, 0);
    for (int64_t i = 0; i < tile.rows; ++i) {
      const char* in = from.data + i * from.row_stride;
      char* out = to.data + i * to.row_stride;
      if (from.column_stride == size_) {
        std::memcpy(out, in, static_cast<size_t>(tile.columns * size_));
        continue;
      }
      for (int64_t j = 0; j < tile.columns; ++j) {
        std::memcpy(out + j * size_, in + j * from.column_stride, static_cast<size_t>(size_));
      }
    }
  }

  const QuantizedOperands& m_;
  int64_t size_;
  cpu::Maps Cpu::Passes::* pass_;
  const cpu::Loops& loops_;
  const cpu::GluLoops& glu_;
};

}  // namespace gelu_kernels
