// The kernels that quantise a pass's results, on each device.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "csrc/cpu/quantize_loops.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"

namespace gelu_kernels {

template <class Device>
struct QuantizedKernels;

template <>
struct QuantizedKernels<Cpu> {
  using Passes = Cpu::Passes;

  static const at::Tensor& with_vectors(const at::Tensor& t) { return t; }

  // A tile of results stays in the processor's cache between the gate's loop and the
  // loops that quantise it.
  template <int outputs>
  static void run(const char* op, cpu::Maps Passes::* pass, Gate gate, const at::Tensor& x,
                  const QuantizedOperands& m) {
    const float* scale = m.quantization.scale;  // a GPU's is not at hand: there NaN tells of it
    TORCH_CHECK_VALUE(!scale || *scale > 0, "gelu_kernels::", op, ": scale must be positive, got ",
                      *scale);
    const int64_t elements = m.rows * m.columns, size = static_cast<int64_t>(x.element_size());
    const cpu::Loops& gate_loops = cpu::loops(gate, dtype_of(x), elements);
    const cpu::QuantizeLoops& loops =
        cpu::quantize_loops(dtype_of(x), m.quantization.is_e5m2, elements);
    const auto [tile_rows, tile_columns] = tile_of(m);
    const int64_t tiles = (m.columns + tile_columns - 1) / tile_columns;
    const int64_t row_tiles = (m.rows + tile_rows - 1) / tile_rows;
    const int64_t tile_bytes = tile_rows * tile_columns * size;
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / (tile_bytes / size));
    std::atomic<uint32_t> amax(0);
    at::parallel_for(0, row_tiles * tiles, grain, [&](int64_t begin, int64_t end) {
      const auto buffer = std::make_unique_for_overwrite<char[]>(outputs * tile_bytes);
      uint32_t most = 0;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task / tiles * tile_rows, column = task % tiles * tile_columns;
        cpu::QuantizeTile tile{buffer.get(), row, column, std::min(m.rows - row, tile_rows),
                               std::min(m.columns - column, tile_columns)};
        if (m.partials) {
          sum_tile(gate_loops.backward_column_sums, m, tile, row / tile_rows, size);
        } else {
          compute_tile<outputs>(gate_loops.passes.*pass, m, tile, tile_bytes, size);
        }
        for (int k = 0; k < outputs; ++k, tile.y += tile_bytes) {
          most = std::max(most, quantize(loops, m.quantization, k, tile, size));
        }
      }
      uint32_t before = amax;
      while (before < most && !amax.compare_exchange_weak(before, most)) {
      }
    });
    if (m.quantization.amax) *m.quantization.amax = from_bits(amax.load());
  }

 private:
  // This much of two float32 results fits in half of a 1 MB cache; 16-bit results take less.
  static constexpr int64_t kTile = int64_t{1} << 14;

  // A column sum needs a block of rows. Blocks along the columns have 32 rows; more rows fill whole
  // cache lines.
  static std::pair<int64_t, int64_t> tile_of(const QuantizedOperands& m) {
    const Quantization& q = m.quantization;
    if (m.partials) return {RowBlocks(m.rows).block_rows, cpu::kColumnTile};
    if (q.results[0].columns.data) {
      return {cpu::kMostQuantizedRows, kTile / cpu::kMostQuantizedRows};
    }
    const int64_t columns = q.scaling == Scaling::RowWise ? m.columns : std::min(m.columns, kTile);
    return {std::max<int64_t>(1, kTile / columns), columns};
  }

  template <int outputs>
  static void compute_tile(const cpu::Maps& maps, const QuantizedOperands& m,
                           const cpu::QuantizeTile& tile, int64_t tile_bytes, int64_t size) {
    constexpr size_t most = outputs + kMaxQuantizedInputs + 1;
    char* data[most];
    int64_t along_row[most], from_row_to_row[most], strides[2 * most];
    size_t k = 0;
    const auto add = [&](const Matrix& matrix) {
      data[k] = matrix.data;
      along_row[k] = matrix.column_stride;
      from_row_to_row[k++] = matrix.row_stride;
    };
    for (int i = 0; i < outputs; ++i) {
      add({const_cast<char*>(tile.y) + i * tile_bytes, size, tile.columns * size});
    }
    for (const Matrix& in : m.in) {
      if (in.data) add(tile_at(in, tile.row, tile.column));
    }
    if (m.bias) add({const_cast<char*>(m.bias) + tile.column * size, size, 0});
    std::copy_n(along_row, k, strides);
    std::copy_n(from_row_to_row, k, strides + k);
    (m.bias ? maps.biased : maps.plain)(data, strides, tile.columns, tile.rows);
  }

  static void sum_tile(cpu::BackwardColumnSums sum, const QuantizedOperands& m,
                       const cpu::QuantizeTile& tile, int64_t block, int64_t size) {
    const Matrix dx{const_cast<char*>(tile.y), size, tile.columns * size};
    const ColumnSums sums{dx,
                          tile_at(m.in[0], tile.row, tile.column),
                          tile_at(m.in[1], tile.row, tile.column),
                          {m.bias + tile.column * size},
                          nullptr,
                          {m.partials},
                          /*sums=*/{},
                          m.rows,
                          m.columns};
    sum(sums, 0, 0, block * m.columns + tile.column, tile.columns, tile.rows);
  }

  static uint32_t quantize(const cpu::QuantizeLoops& loops, const Quantization& q, int result,
                           const cpu::QuantizeTile& tile, int64_t size) {
    const auto& [rows, columns] = q.results[result];
    if (columns.data) {
      for (int64_t i = 0; i < tile.rows; i += cpu::kMostQuantizedRows) {
        loops.columns(q, columns,
                      {tile.y + i * tile.columns * size, tile.row + i, tile.column,
                       std::min(tile.rows - i, cpu::kMostQuantizedRows), tile.columns});
      }
    }
    return rows.data ? loops.rows(q, rows, tile) : 0;
  }
};

template <>
struct QuantizedKernels<Cuda> {
  using Passes = decltype(cuda::quantized_passes());

  // Rows of vectors that are aligned: a copy, if t has no such rows.
  static at::Tensor with_vectors(const at::Tensor& t) {
    const int64_t columns = t.size(-1);
    const auto m = matrix_layout(t, t.numel() / columns, columns);
    const bool has_vectors = m && m->column_stride == static_cast<int64_t>(t.element_size()) &&
                             is_aligned(m->data, m->row_stride);
    return has_vectors ? t : t.clone(at::MemoryFormat::Contiguous);
  }

  template <int outputs, class Pass>
  static void run(const char* op, Pass pass, Gate gate, const at::Tensor& x,
                  const QuantizedOperands& m) {
    const auto find = cuda::quantized_passes().*pass;
    start(op, x, find(gate, dtype_of(x), m.bias != nullptr), m);
  }
};

}  // namespace gelu_kernels
