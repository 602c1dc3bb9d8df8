// Passes whose results are quantised, tile by tile: a warp computes a tile and keeps it in
// registers until the scales of its blocks are known.
#pragma once

#include "csrc/cuda/divisor.h"
#include "csrc/cuda/launch.h"
#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/quantized/tile.cuh"

namespace gelu_kernels::cuda {

// Scales are floats in a forward pass alone; a backward pass may sum the gradient of the bias.
enum class TilePass { forward, backward, backward_bias };

template <class Function, class Precision, int kColumns, TilePass pass>
struct QuantizedMap : RowMap<Function, Precision, kColumns> {
  using Real = typename Precision::Real;
  using typename RowMap<Function, Precision, kColumns>::V;
  using typename RowMap<Function, Precision, kColumns>::Along;
  static constexpr bool has_sums = pass == TilePass::backward_bias;
  using Tile = QuantizedTile<Precision, has_sums>;
  static constexpr int inputs = RowMap<Function, Precision, kColumns>::inputs;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  static constexpr bool converts = false;
#else
  static constexpr bool converts = true;
#endif
  // Rows that a lane loads before it computes.
  static constexpr int ahead = quantized_tile_rows(inputs, V::size, converts);
  static constexpr int blocks = quantized_tile_blocks_per_processor(
      inputs, V::size, kColumns, has_sums, converts, kPacked<Real> > 1);

  // dx, and adds it to the sums before it is rounded.
  static __device__ __forceinline__ V sum(const V (&in)[inputs], const Along& along,
                                          Real (&sums)[V::size]) {
    Real dy[V::size], x[V::size], dx[V::size];
    in[0].unpack(dy);
    in[1].unpack(x);
#pragma unroll
    for (int j = 0; j < V::size; j += kPacked<Real>) {
      unpack(Function::apply(pack(dy + j), pack(x + j), pack(along[0] + j)), dx + j);
    }
    // Not in pairs: the terms are products.
#pragma unroll
    for (int j = 0; j < V::size; ++j) sums[j] += dx[j];
    return V::round(dx);
  }
};

template <class Function, class Precision, int kColumns, TilePass pass>
__global__ void __launch_bounds__(kTileThreads,
                                  QuantizedMap<Function, Precision, kColumns, pass>::blocks)
    quantize_tiles(const __grid_constant__ QuantizedOperands m, const Divisor tiles,
                   uint32_t block_rows) {
  using Map = QuantizedMap<Function, Precision, kColumns, pass>;
  using Tile = typename Map::Tile;
  using Lane = typename Tile::Lane;
  using V = typename Map::V;
  using T = typename V::T;
  using Real = typename Precision::Real;
  constexpr int inputs = Map::inputs, outputs = Map::outputs;
  constexpr bool has_sums = Map::has_sums, is_forward = pass == TilePass::forward;
  constexpr auto each = std::make_index_sequence<inputs>();
  constexpr auto each_along = std::make_index_sequence<kColumns>();
  const Quantization& q = m.quantization;
  // A matrix of 2^32 rows or columns would not fit in the memory of a GPU.
  const auto rows = static_cast<uint32_t>(m.rows), columns = static_cast<uint32_t>(m.columns);
  if constexpr (has_sums) start_dependent();  // the second stage of the sums

  const uint32_t warp = blockIdx.x * kTileWarps + threadIdx.x / kWarp;
  const uint32_t band = tiles.divide(warp);
  Lane t;
  t.lane = threadIdx.x % kWarp;
  t.group = t.lane / kTileLanes;
  t.row = band * block_rows;
  const uint32_t first_column = (warp - band * tiles.divisor) * Tile::columns;
  t.column = first_column + t.lane % kTileLanes * V::size;
  t.first = t.group * (has_sums ? 2 : kLaneRows);
  const bool is_there = t.column < columns && t.row < rows;

  // It is unpacked behind the loads of the tile, so that both are waited for at a time.
  V bias = no_bias<Precision>();
  if constexpr (kColumns == 1) {
    if (m.bias && is_there) bias = V::load(reinterpret_cast<const T*>(m.bias) + t.column);
  }
  float scale = 0;  // is waited for with the tile, too
  if constexpr (is_forward) {
    if (q.scaling == Scaling::TensorWise) scale = *q.scale;
  }
  const char* at[inputs];
  uint32_t stride[inputs];
#pragma unroll
  for (int k = 0; k < inputs; ++k) {
    stride[k] = static_cast<uint32_t>(m.in[k].row_stride / kVectorBytes);
    at[k] = as_base(m.in[k].data + (t.row + t.first) * m.in[k].row_stride + t.column * sizeof(T));
  }
  const uint32_t end = min(t.row + block_rows, rows);
  Real sums[2][V::size] = {};
  do {
    t.is_whole = first_column + Tile::columns <= columns && t.row + kTileRows <= end;
    t.rows = is_there ? static_cast<int>(min(end - t.row, uint32_t{kTileRows})) : 0;
    typename Tile::Rounded y[outputs];
    const auto compute = [&](auto begin) {
      constexpr int first = decltype(begin)::value;
      V in[Map::ahead][inputs];
      const auto load = [&](int i) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) {
          in[i - first][k] = V::load(
              reinterpret_cast<const T*>(advance<kVectorBytes>(at[k], stride[k], Lane::offset(i))));
        }
      };
      const auto clear = [&](int i) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) in[i - first][k] = {};
      };
      t.template for_rows<first, first + Map::ahead>(load, clear);
      typename Map::Along along;
      if constexpr (has_sums) {  // it stays packed from one tile to the next
        asm("" : "+r"(bias.words.x), "+r"(bias.words.y), "+r"(bias.words.z), "+r"(bias.words.w));
      }
      bias.unpack(along[0]);
#pragma unroll
      for (int i = first; i < first + Map::ahead; ++i) {
        if constexpr (has_sums) {
          y[0][i] = Map::sum(in[i - first], along, sums[i % 2]);
        } else {
          V out[outputs];
          Map::apply(out, in[i - first], along, each, each_along);
#pragma unroll
          for (int r = 0; r < outputs; ++r) y[r][i] = out[r];
        }
      }
    };
    compute(std::integral_constant<int, 0>());
    if constexpr (Map::ahead == 2) {
      compute(std::integral_constant<int, 2>());
      compute(std::integral_constant<int, 4>());
      compute(std::integral_constant<int, 6>());
    }
    if (is_forward && q.scaling == Scaling::TensorWise) {
      Tile::quantize_by_given(q, scale, y[0], t);
    } else if (is_forward && q.scaling == Scaling::BlockWise1x128) {
      Tile::quantize_by_128(q, y[0], t);
    } else {
#pragma unroll
      for (int r = 0; r < outputs; ++r) Tile::quantize(q, q.results[r], y[r], t);
    }
    if constexpr (!has_sums) return;
    t.row += kTileRows;
#pragma unroll
    for (int k = 0; k < inputs; ++k) at[k] = advance<kVectorBytes>(at[k], stride[k], kTileRows);
  } while (t.row < end);

  // The sums of a column are added in order: two of each group.
  if constexpr (has_sums) {
    float* const to = static_cast<float*>(m.partials) + band * m.columns + t.column;
#pragma unroll
    for (int j = 0; j < V::size; ++j) {
      Real total = sums[0][j] + sums[1][j];
#pragma unroll
      for (int group = 1; group < kTileGroups; ++group) {
        const Real before = __shfl_up_sync(kAllLanes, total, kTileLanes);
        if (t.group == group) total = (before + sums[0][j]) + sums[1][j];
      }
      if (t.group == kTileGroups - 1 && is_there) to[j] = total;
    }
  }
}

template <class Kernels, class Function, class Precision, int kColumns, TilePass pass>
Error launch_quantize_tiles(Queue queue, const QuantizedOperands& m) {
  using Map = QuantizedMap<Function, Precision, kColumns, pass>;
  const int64_t block_rows = Map::has_sums ? RowBlocks(m.rows).block_rows : kTileRows;
  const int64_t bands = (m.rows + block_rows - 1) / block_rows;
  const int64_t tiles = (m.columns + Map::Tile::columns - 1) / Map::Tile::columns;
  return launch<Kernels>(queue, quantize_tiles<Function, Precision, kColumns, pass>,
                         (bands * tiles + kTileWarps - 1) / kTileWarps, kTileThreads, m,
                         Divisor(static_cast<uint32_t>(tiles)), static_cast<uint32_t>(block_rows));
}

}  // namespace gelu_kernels::cuda
