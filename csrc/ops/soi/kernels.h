// The kernels of the SOI map on each device.
#pragma once

#include "csrc/cpu/soi_loops.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"

namespace gelu_kernels {

template <class Device>
struct SoiKernels;

template <>
struct SoiKernels<Cpu> {
  static constexpr int64_t copies_of_number = 1;
  static void forward(const char*, const at::Tensor& x, Gate gate, const SoiForwardOperands& m) {
    const cpu::SoiLoops& loops = cpu::soi_loops(gate, dtype_of(x), x.numel());
    run(m.loc.data ? loops.cdf_forward : loops.forward, m);
  }
  static void backward(const char*, const at::Tensor& dy, const SoiBackwardOperands& m) {
    run(of_any_gate(dy).backward, m);
  }
  static cpu::BackwardColumnSums column_sums(const at::Tensor& dy) {
    return of_any_gate(dy).backward_column_sums;
  }

 private:
  // A gradient has the same loops for every gate.
  static const cpu::SoiLoops& of_any_gate(const at::Tensor& dy) {
    return cpu::soi_loops(Gate{}, dtype_of(dy), dy.numel());
  }

  template <class Operands>
  static void run(void (*loop)(const Operands&, int64_t, int64_t), const Operands& m) {
    over_mask_blocks(m.rows * m.columns, [&](int64_t begin, int64_t end) { loop(m, begin, end); });
  }
};

template <>
struct SoiKernels<Cuda> {
  static constexpr int64_t copies_of_number = 8;
  static void forward(const char* op, const at::Tensor& x, Gate gate, const SoiForwardOperands& m) {
    const auto find = m.loc.data ? cuda::soi_cdf_forward : cuda::soi_forward;
    start(op, x, find(gate, dtype_of(x)), m);
  }
  static void backward(const char* op, const at::Tensor& dy, const SoiBackwardOperands& m) {
    start(op, dy, cuda::soi_backward(dtype_of(dy)), m);
  }
  static cuda::BackwardColumnSums column_sums(const at::Tensor& dy) {
    return cuda::soi_backward_column_sums(dtype_of(dy));
  }
};

}  // namespace gelu_kernels
