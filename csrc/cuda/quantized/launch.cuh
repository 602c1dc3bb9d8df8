// The launchers of the passes whose results are quantised, for every gate and the dtypes that they
// take.
#pragma once

#include "csrc/cuda/quantized/rows.cuh"
#include "csrc/cuda/quantized/tiles.cuh"

namespace gelu_kernels::cuda {

template <class Precision>
constexpr bool can_be_quantized =
    std::is_same_v<Precision, bf16> || std::is_same_v<Precision, fp32>;

constexpr int log_of(int64_t power) { return power == 1 ? 0 : 1 + log_of(power / 2); }

template <class Kernels, class Function, class Precision, int kColumns, TilePass pass>
Error launch_quantize_tiles(Queue queue, const QuantizedOperands& m) {
  using Map = QuantizedMap<Function, Precision, kColumns, pass>;
  using Blocks = BlockTile<Precision>;
  const Quantization& q = m.quantization;
  const QuantizedResult& to = q.results[0];
  TileGrid grid = {};
  const bool exchanges = q.scaling == Scaling::BlockWise1x128 || q.scaling == Scaling::RowWise;
  grid.are_together = exchanges || Map::has_sums;
  int64_t width = Map::Tile::columns, band_rows = kTileRows;
  BlockSize block = kTileThreads;
  if (grid.are_together) {
    const int across = exchanges && to.rows.data ? Blocks::tiles_along_row : 1;
    const bool are_below = to.columns.data || Map::has_sums;
    const int down = are_below ? Blocks::tiles_along_column : kTileWarps / across;
    grid.exchange.log_across = log_of(across);
    band_rows = down * kTileRows;
    width *= across;
    block.threads = down * across * kWarp;
    if constexpr (Map::has_sums) {
      const int64_t sum_rows = RowBlocks(m.rows).block_rows;
      grid.log_sum_rows = log_of(sum_rows);
      band_rows = std::max(band_rows, sum_rows);
      block.shared_bytes = across * TileSums<Precision>::shared_bytes;
    }
  }
  grid.band_rows = static_cast<uint32_t>(band_rows);
  const int64_t tiles = (m.columns + width - 1) / width;
  grid.along_band = Divisor(static_cast<uint32_t>(tiles));
  // Each group may end with a part of a band.
  const int64_t groups = q.groups.ends ? q.groups.count : 1;
  const int64_t bands = (m.rows + groups * (band_rows - 1)) / band_rows;
  const int64_t blocks =
      grid.are_together ? bands * tiles : (bands * tiles + kTileWarps - 1) / kTileWarps;
  const auto run = [&](Search search) {
    grid.exchange.search = search;
    return launch<Kernels>(queue, quantize_tiles<Function, Precision, kColumns, pass>, blocks,
                           block, m, QuantizedNumbers(m), grid);
  };
  if (q.scaling != Scaling::RowWise) return run(Search::here);
  const Error error = run(Search::collect);
  return error ? error : run(Search::known);
}

// Rows alone that have a scale each are read once.
template <class Function, class Precision, int kColumns, TilePass pass>
Error launch_quantized(Queue queue, const QuantizedOperands& m) {
  using Kernels = KernelSet<quantize_tiles<Function, Precision, kColumns, pass>,
                            quantize_rows<Function, Precision, kColumns>>;
  const bool are_rows =
      m.quantization.scaling == Scaling::RowWise && !m.quantization.results[0].columns.data;
  return are_rows ? launch_quantize_rows<Kernels, Function, Precision, kColumns>(queue, m)
                  : launch_quantize_tiles<Kernels, Function, Precision, kColumns, pass>(queue, m);
}

// With the sums of the columns.
template <class Function, class Precision, int kColumns>
Error launch_quantized_sums(Queue queue, const QuantizedOperands& m) {
  constexpr TilePass pass = TilePass::backward_bias;
  using Kernels = KernelSet<quantize_tiles<Function, Precision, kColumns, pass>>;
  return launch_quantize_tiles<Kernels, Function, Precision, kColumns, pass>(queue, m);
}

}  // namespace gelu_kernels::cuda
