// The kernels of the SOI map, over a device.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "csrc/cpu/soi_loops.h"
#include "csrc/ops/device/column_sums.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {

template <class Device>
struct SoiKernels;

template <>
struct SoiKernels<Cpu> {
  static void forward(const char*, const Tensor& x, Gate gate, const SoiForwardOperands& m) {
    run(cpu::soi_loops(gate, dtype_of(x), x.numel()).forward, m);
  }
  static void backward(const char*, const Tensor& dy, const SoiBackwardOperands& m) {
    run(of_any_gate(dy).backward, m);
  }
  static cpu::BackwardColumnSums column_sums(const Tensor& dy) {
    return of_any_gate(dy).backward_column_sums;
  }

 private:
  // A gradient has the same loops for every gate.
  static const cpu::SoiLoops& of_any_gate(const Tensor& dy) {
    return cpu::soi_loops(Gate{}, dtype_of(dy), dy.numel());
  }

  // Threads meet where bytes of the mask do.
  template <class Operands>
  static void run(void (*loop)(const Operands&, int64_t, int64_t), const Operands& m) {
    const int64_t n = m.rows * m.columns, blocks = (n + cpu::kMaskBlock - 1) / cpu::kMaskBlock;
    constexpr int64_t grain = at::internal::GRAIN_SIZE / cpu::kMaskBlock;
    at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
      loop(m, begin * cpu::kMaskBlock, std::min(end * cpu::kMaskBlock, n));
    });
  }
};

template <>
struct SoiKernels<Cuda> {
  static void forward(const char* op, const Tensor& x, Gate gate, const SoiForwardOperands& m) {
    start(op, x, cuda::soi_forward(gate, dtype_of(x)), m);
  }
  static void backward(const char* op, const Tensor& dy, const SoiBackwardOperands& m) {
    start(op, dy, cuda::soi_backward(dtype_of(dy)), m);
  }
  static cuda::BackwardColumnSums column_sums(const Tensor& dy) {
    return cuda::soi_backward_column_sums(dtype_of(dy));
  }
};

// Two tensors as matrices: one row if they are contiguous, else the last dimension as rows.
template <class Run>
void in_row_major_order(const Tensor& out, const Tensor& in, bool by_rows, Run run) {
  if (out.numel() == 0) return;
  const bool one_row = !by_rows && out.is_contiguous() && in.is_contiguous();
  with_matrices(one_row ? out.numel() : out.size(-1), run, out, in);
}

template <class Device>
std::tuple<Tensor, Tensor> SoiForward::compute(const Tensor& x, const OptionalTensor& bias,
                                               const Tensor& seed, std::string_view gate,
                                               int64_t offset, int64_t row_length,
                                               int64_t row_stride) {
  const char* op = "soi_forward";
  const GlobalIndex index{offset, row_length, row_stride};
  const Gate id = check_soi_forward(x, bias, seed, gate, index);
  Tensor y = Device::empty_like(x);
  Tensor mask = at::empty_symint({mask_bytes(x)}, x.options().dtype(at::kByte));
  if constexpr (Device::has_data) {
    const Tensor contiguous_bias = bias ? bias->contiguous() : Tensor();
    const char* bias_data = bias ? data_of(contiguous_bias) : nullptr;
    in_row_major_order(y, x, bias.has_value(),
                       [&](int64_t rows, int64_t columns, Matrix y_rows, Matrix x_rows) {
                         SoiKernels<Device>::forward(
                             op, x, id,
                             {y_rows, x_rows, bias_data, reinterpret_cast<uint8_t*>(data_of(mask)),
                              seed.const_data_ptr<int64_t>(), index, rows, columns});
                       });
  }
  return {std::move(y), std::move(mask)};
}

template <class Device>
Tensor SoiBackward::compute(const Tensor& dy, const Tensor& mask) {
  const char* op = "soi_backward";
  check_soi_backward(op, dy, mask, /*has_bias=*/false);
  Tensor dx = Device::empty_like(dy);
  if constexpr (Device::has_data) {
    const Tensor contiguous_mask = mask.contiguous();
    in_row_major_order(
        dx, dy, /*by_rows=*/false,
        [&](int64_t rows, int64_t columns, Matrix dx_rows, Matrix dy_rows) {
          SoiKernels<Device>::backward(
              op, dy, {dx_rows, dy_rows, contiguous_mask.const_data_ptr<uint8_t>(), rows, columns});
        });
  }
  return dx;
}

template <class Device>
std::tuple<Tensor, Tensor> SoiBackwardBias::compute(const Tensor& dy, const Tensor& mask) {
  const char* op = "soi_backward_bias";
  check_soi_backward(op, dy, mask, /*has_bias=*/true);
  Tensor dx = Device::empty_like(dy);
  Tensor dbias = at::empty_symint({dy.sym_size(-1)}, dy.options());
  if constexpr (Device::has_data) {
    const Tensor contiguous_mask = mask.contiguous();
    sum_columns<Device>(op, SoiKernels<Device>::column_sums(dy), /*bias=*/nullptr,
                        contiguous_mask.const_data_ptr<uint8_t>(), dbias, dx, dy);
  }
  return {std::move(dx), std::move(dbias)};
}

}  // namespace gelu_kernels
