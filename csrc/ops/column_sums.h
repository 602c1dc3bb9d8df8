// The bias gradient on the CPU: tiles of a matrix for the threads, in the order of
// csrc/gates/column_sums.h.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "csrc/cpu/loops.h"
#include "csrc/gates/column_sums.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

// dbias = the column sums of a matrix. sum_tile(row, column, partial, columns, rows) writes the
// partial sums of the tile at (row, column); add_partial_sums adds them up.
template <class SumTile>
void sum_columns(const at::Tensor& dbias, int64_t matrix_rows, cpu::AddPartialSums add_partial_sums,
                 SumTile sum_tile) {
  const int64_t columns = dbias.numel();
  char* dbias_data = data_of(dbias);
  const int64_t size = static_cast<int64_t>(dbias.element_size());

  const auto [block_rows, blocks] = RowBlocks(matrix_rows);
  const int64_t tiles = (columns + cpu::kColumnTile - 1) / cpu::kColumnTile;
  const at::Tensor partial =
      at::empty({blocks, columns}, dbias.options().dtype(size == 8 ? at::kDouble : at::kFloat));
  char* partial_data = data_of(partial);
  const int64_t partial_size = static_cast<int64_t>(partial.element_size());

  const int64_t tile_elements = block_rows * std::min(columns, cpu::kColumnTile);
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / tile_elements);
  at::parallel_for(0, blocks * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / tiles * block_rows;
      const int64_t column = task % tiles * cpu::kColumnTile;
      sum_tile(row, column, partial_data + (task / tiles * columns + column) * partial_size,
               std::min(columns - column, cpu::kColumnTile),
               std::min(matrix_rows - row, block_rows));
    }
  });
  at::parallel_for(0, tiles, std::max<int64_t>(1, grain / blocks), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t column = tile * cpu::kColumnTile;
      add_partial_sums(partial_data + column * partial_size, columns, blocks,
                       dbias_data + column * size, std::min(columns - column, cpu::kColumnTile));
    }
  });
}

}  // namespace gelu_kernels
