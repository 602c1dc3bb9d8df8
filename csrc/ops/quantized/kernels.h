// The kernels that quantise a pass's results, on each device.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "csrc/ops/device/cuda.h"
#include "csrc/ops/quantized/tile_results.h"

namespace gelu_kernels {

template <class Device>
struct QuantizedKernels;

template <>
struct QuantizedKernels<Cpu> {
  using Passes = QuantizedPasses<cpu::Maps Cpu::Passes::*>;

  static const at::Tensor& with_vectors(const at::Tensor& t) { return t; }

  // Halves that share the scale of a row are two tiles.
  template <int outputs>
  static bool needs_amax(const QuantizedOperands& m) {
    const Quantization& q = m.quantization;
    const auto &first = q.results[0], &second = q.results[1];
    const bool are_halves =
        outputs == 2 && first.rows.data && first.rows.scales == second.rows.scales;
    return q.scaling == Scaling::RowWise && (first.columns.data || are_halves);
  }

  static void check_ends(const char* op, const at::Tensor& offsets, int64_t rows) {
    const int32_t* ends = offsets.const_data_ptr<int32_t>();
    int64_t begin = 0;
    for (int64_t k = 0; k < offsets.numel(); begin = ends[k++]) {
      TORCH_CHECK_VALUE(begin <= ends[k] && ends[k] <= rows, "gelu_kernels::", op,
                        ": offsets must ascend from 0 to at most the number of rows of x, ", rows,
                        ", got ", ends[k], " after ", begin);
    }
  }

  // A tile of results stays in the processor's cache between the gate's loop and the
  // loops that quantise it.
  template <int outputs>
  static void run(const char* op, cpu::Maps Cpu::Passes::* Passes::* pass, Gate gate,
                  const at::Tensor& x, const QuantizedOperands& m) {
    const Quantization& q = m.quantization;
    // A GPU's is not at hand: there NaN tells of it.
    TORCH_CHECK_VALUE(!q.scale || *q.scale > 0, "gelu_kernels::", op,
                      ": scale must be positive, got ", *q.scale);
    const TileResults<outputs> results(gate, x, m, kPasses.*pass);
    const cpu::QuantizeLoops& loops =
        cpu::quantize_loops(dtype_of(x), q.is_e5m2, m.rows * m.columns);
    const auto [tile_rows, tile_columns] = size_of_tile(m);
    const std::vector<cpu::QuantizeTile> bands = bands_of(m, tile_rows);
    const int64_t tiles = (m.columns + tile_columns - 1) / tile_columns;
    const int64_t bytes = tile_rows * tile_columns * static_cast<int64_t>(x.element_size());
    const int64_t grain =
        std::max<int64_t>(1, at::internal::GRAIN_SIZE / (tile_rows * tile_columns));
    std::atomic<uint32_t> amax(0);
    const auto for_tiles = [&](const auto& quantize) {
      const auto count = static_cast<int64_t>(bands.size()) * tiles;
      at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
        const auto buffer = std::make_unique_for_overwrite<char[]>(outputs * bytes);
        for (int64_t task = begin; task < end; ++task) {
          cpu::QuantizeTile tile = bands[task / tiles];
          tile.column = task % tiles * tile_columns;
          tile.columns = std::min(m.columns - tile.column, tile_columns);
          tile.y = buffer.get();
          results.compute(tile, bytes);
          for (int k = 0; k < outputs; ++k, tile.y += bytes) quantize(q.results[k], tile);
        }
      });
    };
    if (q.results[0].rows.amax || q.results[0].columns.amax) for_tiles(loops.add_amax);
    for_tiles([&](const QuantizedResult& to, const cpu::QuantizeTile& tile) {
      if (to.columns.data) in_short_tiles(loops, q, to.columns, tile, x.element_size());
      const uint32_t most = to.rows.data ? loops.rows(q, to.rows, tile) : 0;
      uint32_t before = amax;
      while (before < most && !amax.compare_exchange_weak(before, most)) {
      }
    });
    if (q.amax) *q.amax = from_bits(amax.load());
  }

 private:
  static constexpr Passes kPasses = {&Cpu::Passes::forward, &Cpu::Passes::backward,
                                     &Cpu::Passes::glu_forward, &Cpu::Passes::glu_backward,
                                     /*cast=*/nullptr};

  // This much of two float32 results fits in half of a 1 MB cache; 16-bit results take less.
  static constexpr int64_t kTile = int64_t{1} << 14;

  // Rows and columns. A column sum needs whole blocks of RowBlocks. Blocks along the columns have
  // up to 128 rows, which fill whole cache lines.
  static std::pair<int64_t, int64_t> size_of_tile(const QuantizedOperands& m) {
    const Quantization& q = m.quantization;
    if (m.partials) {
      return {std::max(RowBlocks(m.rows).block_rows, cpu::kMostQuantizedRows), cpu::kColumnTile};
    }
    if (q.results[0].columns.data) {
      return {cpu::kMostQuantizedRows, kTile / cpu::kMostQuantizedRows};
    }
    const int64_t columns = q.scaling == Scaling::RowWise ? m.columns : std::min(m.columns, kTile);
    return {std::max<int64_t>(1, kTile / columns), columns};
  }

  // The rows of tiles, which begin anew in each group.
  static std::vector<cpu::QuantizeTile> bands_of(const QuantizedOperands& m, int64_t tile_rows) {
    const auto& [ends, count] = m.quantization.groups;
    const int64_t block = m.quantization.scaling == Scaling::BlockWise1x32 ? kMxBlock : kFloatBlock;
    std::vector<cpu::QuantizeTile> bands;
    RowGroup group = {0, 0, 0, 0};
    for (int32_t k = 0; k < count; ++k) {
      group.begin = group.end;
      group.end = ends ? ends[k] : m.rows;
      for (int64_t row = group.begin; row < group.end; row += tile_rows) {
        bands.push_back(
            {nullptr, row, 0, std::min(group.end - row, tile_rows), 0, m.columns, group});
      }
      const bool is_row_wise = m.quantization.scaling == Scaling::RowWise;
      group.first_block += is_row_wise ? 1 : (group.end - group.begin + block - 1) / block;
      group.first_tile += group.tiles();
    }
    return bands;
  }

  static void in_short_tiles(const cpu::QuantizeLoops& loops, const Quantization& q,
                             const QuantizedMatrix& to, cpu::QuantizeTile tile, size_t size) {
    const int64_t end = tile.row + tile.rows;
    for (; tile.row < end; tile.row += cpu::kMostQuantizedRows) {
      tile.rows = std::min(end - tile.row, cpu::kMostQuantizedRows);
      loops.columns(q, to, tile);
      tile.y += cpu::kMostQuantizedRows * tile.columns * static_cast<int64_t>(size);
    }
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

  // A launcher takes the largest magnitudes of halves together.
  template <int outputs>
  static bool needs_amax(const QuantizedOperands& m) {
    const Quantization& q = m.quantization;
    return q.scaling == Scaling::RowWise && q.results[0].columns.data;
  }
  // Their values are not at hand.
  static void check_ends(const char*, const at::Tensor&, int64_t) {}

  template <int outputs, class Pass>
  static void run(const char* op, Pass pass, Gate gate, const at::Tensor& x,
                  const QuantizedOperands& m) {
    const auto find = cuda::quantized_passes().*pass;
    start(op, x, find(gate, dtype_of(x), m.bias != nullptr), m);
  }
};

}  // namespace gelu_kernels
