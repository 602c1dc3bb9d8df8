// The launchers of the passes whose results are quantised, for every gate and the dtypes that they
// take.
#pragma once

#include "csrc/cuda/quantized/rows.cuh"
#include "csrc/cuda/quantized/tiles.cuh"

namespace gelu_kernels::cuda {

template <class Precision>
constexpr bool can_be_quantized =
    std::is_same_v<Precision, bf16> || std::is_same_v<Precision, fp32>;

template <class Kernels, class Function, class Precision, int kColumns, TilePass pass>
Error launch_quantize_tiles(Queue queue, const QuantizedOperands& m) {
  using Map = QuantizedMap<Function, Precision, kColumns, pass>;
  using Blocks = BlockTile<Precision>;
  const Quantization& q = m.quantization;
  const QuantizedResult& to = q.results[0];
  TileGrid grid = {};
  grid.exchanges = q.scaling == Scaling::BlockWise1x128 || q.scaling == Scaling::RowWise;
  grid.block_rows = static_cast<uint32_t>(Map::has_sums ? RowBlocks(m.rows).block_rows : kTileRows);
  int64_t width = Map::Tile::columns;
  int warps = kTileWarps;
  if (grid.exchanges) {
    const int down =
        to.columns.data ? Blocks::tiles_along_column : kTileWarps / Blocks::tiles_along_row;
    const int across = to.rows.data ? Blocks::tiles_along_row : 1;
    grid.exchange.log_across = across == 4 ? 2 : across == 2 ? 1 : 0;
    grid.block_rows = static_cast<uint32_t>(down * kTileRows);
    width *= across;
    warps = down * across;
  }
  const int64_t tiles = (m.columns + width - 1) / width;
  grid.along_band = Divisor(static_cast<uint32_t>(tiles));
  // Each group may end with a part of a band.
  const int64_t groups = q.groups.ends ? q.groups.count : 1;
  const int64_t bands = (m.rows + groups * (grid.block_rows - 1)) / grid.block_rows;
  const int64_t blocks =
      grid.exchanges ? bands * tiles : (bands * tiles + kTileWarps - 1) / kTileWarps;
  const auto run = [&](Search search) {
    grid.exchange.search = search;
    return launch<Kernels>(queue, quantize_tiles<Function, Precision, kColumns, pass>, blocks,
                           warps * kWarp, m, QuantizedNumbers(m), grid);
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
