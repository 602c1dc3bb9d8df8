// The CPU: memory, tensors and threads for the loops of csrc/cpu.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>

#include "csrc/cpu/loops.h"
#include "csrc/ops/device/huge_pages.h"
#include "csrc/ops/layout.h"
#include "csrc/random/seed.h"

namespace gelu_kernels {

// Runs a loop over elements with a mask. Threads split at whole bytes of the mask.
template <class Loop>
void over_mask_blocks(int64_t elements, const Loop& loop) {
  const int64_t blocks = (elements + cpu::kMaskBlock - 1) / cpu::kMaskBlock;
  constexpr int64_t grain = at::internal::GRAIN_SIZE / cpu::kMaskBlock;
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    loop(begin * cpu::kMaskBlock, std::min(end * cpu::kMaskBlock, elements));
  });
}

struct Cpu {
  static constexpr bool has_data = true;
  using Passes = gelu_kernels::Passes<cpu::Maps>;

  // at::empty_like without the dispatcher, which would take a quarter of a small call.
  static at::Tensor empty_like(const at::Tensor& x) {
    if (!x.is_non_overlapping_and_dense()) return in_huge_pages(at::empty_like(x));
    return in_huge_pages(at::detail::empty_strided_cpu(x.sizes(), x.strides(), x.scalar_type()));
  }
  static at::Tensor empty_contiguous(const at::Tensor& x) {
    return empty(x, x.sizes(), x.scalar_type());
  }
  static at::Tensor empty(const at::Tensor&, at::IntArrayRef sizes, at::ScalarType dtype) {
    return in_huge_pages(at::detail::empty_cpu(sizes, dtype));
  }

  static Seed seed_of(const at::Tensor& seed) {
    return {/*in_memory=*/nullptr, *seed.const_data_ptr<int64_t>()};
  }

  // Runs a pass over the elements of its outputs and then of its inputs, which broadcast to them.
  // `bias` is optional, or std::nullopt for a pass that takes none; the last `columns` of the
  // others lie along the columns, as it does.
  template <int outputs = 1, int columns = 0, class Bias, class... Tensors>
  static void map(const char*, cpu::Maps Passes::* pass, Gate gate, const Bias& bias,
                  const at::Tensor& out, const Tensors&... operands) {
    const cpu::Maps& loops = cpu::loops(gate, dtype_of(out), out.numel()).passes.*pass;
    if constexpr (!std::is_same_v<Bias, std::nullopt_t>) {
      if (bias) return run<outputs>(loops.biased, out, operands..., *bias);
    }
    run<outputs>(loops.plain, out, operands...);
  }

  static cpu::BackwardColumnSums column_sums(Gate gate, const at::Tensor& x) {
    return cpu::loops(gate, dtype_of(x), x.numel()).backward_column_sums;
  }

  static cpu::BackwardColumnSums cdf_column_sums(Gate gate, const at::Tensor& x) {
    return cpu::loops(gate, dtype_of(x), x.numel()).cdf_column_sums;
  }

  template <class SumTile>  // a cpu::BackwardColumnSums
  static void sum_columns(const char* op, const at::Tensor& dx, const SumTile& sum_tile,
                          const ColumnSums& m) {
    const auto [block_rows, blocks] = RowBlocks(m.rows);
    const int64_t tiles = (m.columns + cpu::kColumnTile - 1) / cpu::kColumnTile;
    const int64_t tile_elements = block_rows * std::min(m.columns, cpu::kColumnTile);
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / tile_elements);
    at::parallel_for(0, blocks * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t block = task / tiles, column = task % tiles * cpu::kColumnTile;
        sum_tile(m, block * block_rows, column, block * m.columns + column,
                 std::min(m.columns - column, cpu::kColumnTile),
                 std::min(m.rows - block * block_rows, block_rows));
      }
    });
    for (int k = 0; k < 2; ++k) {
      if (m.sums[k]) add_partial_sums(op, dx, {m.partials[k], blocks, m.columns, m.sums[k]});
    }
  }

  // The sums have the dtype of `like`.
  static void add_partial_sums(const char*, const at::Tensor& like, const PartialSums& m) {
    const auto add = cpu::loops(Gate{}, dtype_of(like), m.blocks * m.columns).add_partial_sums;
    const int64_t tiles = (m.columns + cpu::kColumnTile - 1) / cpu::kColumnTile;
    const int64_t tile_elements = m.blocks * std::min(m.columns, cpu::kColumnTile);
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / tile_elements);
    at::parallel_for(0, tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t column = begin * cpu::kColumnTile; column < end * cpu::kColumnTile;
           column += cpu::kColumnTile) {
        add(m, column, std::min(m.columns - column, cpu::kColumnTile));
      }
    });
  }

 private:
  // Tensors with the same dense layout are one long row.
  template <int outputs, class... Tensors>
  static void run(cpu::Map loop, const at::Tensor& out, const Tensors&... operands) {
    if (!lie_alike(out, operands...)) {
      iterator_over<outputs>(out, operands...).for_each(loop, at::internal::GRAIN_SIZE);
      return;
    }
    const int64_t size = static_cast<int64_t>(out.element_size());
    at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      char* data[] = {data_of(out) + begin * size, data_of(operands) + begin * size...};
      int64_t strides[2 * std::size(data)];
      std::fill(std::begin(strides), std::end(strides), size);
      loop(data, strides, end - begin, 1);
    });
  }
};

}  // namespace gelu_kernels
