// Passes whose results are quantised, tile by tile: a warp computes a tile and keeps it in
// registers until the scales of its blocks are known.
#pragma once

#include "csrc/cuda/launch.h"
#include "csrc/cuda/quantized/given.cuh"
#include "csrc/cuda/quantized/map.cuh"
#include "csrc/cuda/quantized/mx.cuh"
#include "csrc/cuda/quantized/tile_sums.cuh"

namespace gelu_kernels::cuda {

// The registers of so many blocks a processor, for one that is larger.
template <class Function, class Precision, int kColumns, TilePass pass>
__global__ void __launch_bounds__(
    kTileThreads* QuantizedMap<Function, Precision, kColumns, pass>::blocks)
    quantize_tiles(const __grid_constant__ QuantizedOperands m, QuantizedNumbers numbers,
                   const TileGrid grid) {
  using Map = QuantizedMap<Function, Precision, kColumns, pass>;
  using Tile = typename Map::Tile;
  using V = typename Map::V;
  using T = typename V::T;
  using Real = typename Precision::Real;
  constexpr int inputs = Map::inputs, outputs = Map::outputs;
  constexpr bool has_sums = Map::has_sums, is_forward = pass == TilePass::forward;
  const Quantization& q = m.quantization;
  const bool is_mx = q.scaling == Scaling::BlockWise1x32;
  // A matrix of 2^32 rows or columns would not fit in the memory of a GPU.
  const auto rows = static_cast<uint32_t>(m.rows), columns = static_cast<uint32_t>(m.columns);
  if constexpr (has_sums) start_dependent();  // the second stage of the sums

  const int warp = threadIdx.x / kWarp;
  const bool are_together = has_sums || grid.are_together;
  const uint32_t number = are_together ? blockIdx.x : blockIdx.x * kTileWarps + warp;
  const uint32_t band = grid.along_band.divide(number);
  uint32_t tile = number - band * grid.along_band.divisor;
  Lane t;
  t.lane = threadIdx.x % kWarp;
  t.group = t.lane / kTileLanes;
  t.row = band * grid.band_rows;
  t.first = t.group * kLaneRows;
  __shared__ Kept<Precision, outputs> kept;
  t.group_of_rows = kept.groups + warp;
  uint32_t last = rows;
  if constexpr (!has_sums) {
    if (q.groups.ends) {
      const Bands bands = {rows, is_mx ? 5 : 7, q.scaling != Scaling::RowWise};
      if (!find_band(q.groups, bands, band, t.lane, t.row, *t.group_of_rows)) return;
      last = static_cast<uint32_t>(t.group_of_rows->end);
    }
  }
  uint32_t first_row = t.row;  // of the tiles that are together
  const uint32_t end = min(first_row + grid.band_rows, last);
  if (are_together) {
    t.row += grid.exchange.down(warp) * kTileRows;
    tile = (tile << grid.exchange.log_across) + grid.exchange.across(warp);
  }
  const uint32_t first_column = tile * Tile::columns;
  t.column = first_column + t.lane % kTileLanes * V::size;
  const bool is_there = t.column < columns;

  float scale = 0;  // is waited for with the tile, too
  if constexpr (is_forward) {
    if (q.scaling == Scaling::TensorWise) scale = *q.scale;
  }
  const bool is_known = are_together && grid.exchange.search == Search::known;
  uint32_t known[outputs] = {};
  if constexpr (!has_sums) {
    if (is_known) {
#pragma unroll
      for (int r = 0; r < outputs; ++r) {
        known[r] = BlockTile<Precision>::known(m, q.results[r], grid.exchange, t);
      }
    }
  }
  Real weight = 1;  // of a row of the tile for each lane
  if constexpr (is_glu<Function>) {
    if (m.weight && t.row + t.lane < end) {
      weight = Storage<Precision>::load(reinterpret_cast<const T*>(m.weight)[t.row + t.lane]);
    }
  }
  const auto keep = [&] {
    if constexpr (is_glu<Function>) {
      kept.weights[warp][t.lane] = weight;
      __syncwarp();
    }
    if constexpr (!has_sums) {
      if (is_known && threadIdx.x < 2 * kFloatBlock) {
#pragma unroll
        for (int r = 0; r < outputs; ++r) kept.known[r][threadIdx.x] = known[r];
      }
    }
  };
  const auto quantize = [&](const QuantizedResult& to, const typename Tile::Rounded& y, int r) {
    using Mx = MxTile<Precision>;
    using Blocks = BlockTile<Precision>;
    const bool is_given = is_forward && q.scaling == Scaling::TensorWise;
    if (is_given) {
      find_amax<Precision>(q, y, t);
      kept.blocks.inverses[threadIdx.x] = inverse_of_scale(scale);  // as if it had been found
      __syncwarp();
    } else if (!is_mx &&
               !Blocks::find_scales(m, to, grid.exchange, kept.known[r], y, t, kept.blocks)) {
      return;
    }
    if (to.rows.data) {
      typename Tile::RowBytes bytes;
      if (is_mx) {
        Mx::round_rows(q, to.rows, y, t, bytes);
      } else {
        float inverses[kLaneRows];
        Blocks::factors_of_rows(kept.blocks, grid.exchange, t, inverses);
        Tile::round_rows_by(inverses, q.is_e5m2, y, bytes);
      }
      Tile::store_rows(to.rows, bytes, t);
    }
    if (to.columns.data) {
      typename Tile::ColumnBytes bytes;
      if (is_mx) {
        Mx::round_columns(q, to.columns, y, t, bytes);
      } else {
        float inverses[V::size];
        Blocks::factors_of_columns(kept.blocks, to, grid.exchange, t, inverses);
        Tile::round_columns_by(inverses, q.is_e5m2, y, bytes);
      }
      Tile::store_columns(q, to.columns, bytes, t);
    }
  };
  extern __shared__ float4 shared[];
  do {
    // It is unpacked behind the loads of the tile, so that both are waited for at a time.
    V bias = no_bias<Precision>();
    if constexpr (kColumns == 1) {
      if (m.bias && is_there) bias = V::load(reinterpret_cast<const T*>(m.bias) + t.column);
    }
    const char* at[inputs];
    uint32_t stride[inputs];
#pragma unroll
    for (int k = 0; k < inputs; ++k) {
      stride[k] = static_cast<uint32_t>(m.in[k].row_stride / kVectorBytes);
      at[k] = as_base(m.in[k].data + (t.row + t.first) * m.in[k].row_stride + t.column * sizeof(T));
    }
    t.is_whole = first_column + Tile::columns <= columns && t.row + kTileRows <= end;
    t.rows = is_there && t.row < end ? static_cast<int>(min(end - t.row, uint32_t{kTileRows})) : 0;
    typename Tile::Rounded y[outputs];
    const TileSums<Precision> terms(shared, grid.exchange);
    const auto compute = [&](auto begin) {
      constexpr int first = decltype(begin)::value;
      V in[Map::ahead][inputs];
      const auto load = [&](int i) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) {
          in[i - first][k] =
              V::load(reinterpret_cast<const T*>(advance<kVectorBytes>(at[k], stride[k], i)));
        }
      };
      const auto clear = [&](int i) {
#pragma unroll
        for (int k = 0; k < inputs; ++k) in[i - first][k] = {};
      };
      t.template for_rows<first, first + Map::ahead>(load, clear);
      if constexpr (first == 0) keep();
      typename Map::Along along;
      bias.unpack(along);
#pragma unroll
      for (int i = first; i < first + Map::ahead; ++i) {
        if constexpr (has_sums) {
          Real dx[V::size];
          y[0][i] = Map::apply_backward(in[i - first], along, dx);
          terms.keep(t, i, dx);
        } else {
          V out[outputs];
          if constexpr (is_glu<Function>) {
            numbers.weight = kept.weights[warp][t.first + i];
          }
          Map::apply(out, in[i - first], along, numbers);
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
    if constexpr (kColumns == 1) {  // a bias has a value where there is no row
      t.template for_rows<0, kLaneRows>([](int) {}, [&](int i) { y[0][i] = {}; });
    }
    // In a loop, which halves the code.
#pragma unroll 1
    for (int r = 0;;) {
      quantize(q.results[r], y[0], r);
      if (++r == outputs) break;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) y[0][i] = y[outputs - 1][i];
    }
    if constexpr (has_sums) {
      if (is_mx) __syncthreads();  // else all threads have met since they kept their terms
      TileSums<Precision>(shared, grid.exchange).add(m, first_row, first_column, grid.log_sum_rows);
      first_row += kSumRows;
      t.row += kSumRows;
      __syncthreads();  // before the next tiles' terms take the place of these
    }
  } while (has_sums && first_row < end);
}

}  // namespace gelu_kernels::cuda
