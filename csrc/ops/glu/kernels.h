// The kernels of the gated linear unit in general on each device.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "csrc/cpu/glu_loops.h"
#include "csrc/gates/glu_rows.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"
#include "csrc/ops/layout.h"

namespace gelu_kernels {

template <class Device, int outputs>
struct GluKernels;

template <int outputs>
struct GluKernels<Cpu, outputs> {
  // A row is cut into pieces, unless it is summed.
  static void run(const char*, const at::Tensor& out, Gate gate, const GluRows& m) {
    constexpr int64_t kPiece = 16 * kGluLanes;
    const cpu::GluLoops& loops = cpu::glu_loops(gate, dtype_of(out), m.rows * m.columns);
    const cpu::GluRowLoop loop = outputs == 1 ? loops.forward : loops.backward;
    const int64_t width = m.dweight ? m.columns : std::min(m.columns, kPiece);
    const int64_t pieces = (m.columns + width - 1) / width;
    const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / width);
    at::parallel_for(0, m.rows * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t column = task % pieces * width;
        loop(m, task / pieces, column, std::min(m.columns - column, width));
      }
    });
  }
};

template <int outputs>
struct GluKernels<Cuda, outputs> {
  static void run(const char* op, const at::Tensor& out, Gate gate, const GluRows& m) {
    const auto find = outputs == 1 ? cuda::glu_rows_forward : cuda::glu_rows_backward;
    start(op, out, find(gate, dtype_of(out)), m);
  }
};

// Runs over the outputs and then the inputs, of one shape, and writes dweight if it is given.
// Without weights, tensors with the same dense layout are one long row.
template <class Device, int outputs, class... Tensors>
void over_rows(const char* op, Gate gate, const std::optional<at::Tensor>& weight,
               const std::optional<at::Tensor>& dweight, std::optional<double> limit,
               double up_offset, const at::Tensor& out, const Tensors&... operands) {
  if (out.numel() == 0) {
    if (dweight) dweight->zero_();
    return;
  }
  const at::Tensor weights = weight ? weight->contiguous() : at::Tensor();
  at::Tensor sums;
  if (dweight) sums = dweight->is_contiguous() ? *dweight : Device::empty_contiguous(*dweight);
  const auto run = [&](int64_t rows, int64_t columns, const auto&... matrices) {
    GluKernels<Device, outputs>::run(op, out, gate,
                                     {{matrices...},
                                      weight ? data_of(weights) : nullptr,
                                      dweight ? data_of(sums) : nullptr,
                                      limit.value_or(std::numeric_limits<double>::infinity()),
                                      up_offset,
                                      rows,
                                      columns});
  };
  if (!weight && lie_alike(out, operands...)) {
    const auto row = [&](const at::Tensor& t) {
      return Matrix{data_of(t), static_cast<int64_t>(t.element_size()), 0};
    };
    run(1, out.numel(), row(out), row(operands)...);
  } else {
    with_matrices<outputs>(out.size(-1), run, out, operands...);
  }
  if (dweight && !sums.is_same(*dweight)) dweight->copy_(sums);
}

}  // namespace gelu_kernels
