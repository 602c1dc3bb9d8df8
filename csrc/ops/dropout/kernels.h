// The kernels of dropout on each device.
#pragma once

#include "csrc/cpu/dropout_loops.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"
#include "csrc/random/dropout.h"

namespace gelu_kernels {

template <class Device>
struct DropoutKernels;

template <>
struct DropoutKernels<Cpu> {
  static void forward(const char*, const at::Tensor& x, Gate gate,
                      const DropoutForwardOperands& m) {
    const int64_t n = m.rows * m.columns;
    const auto loop = cpu::dropout_loops(dtype_of(x), n).forward;
    const auto value = cpu::loops(gate, dtype_of(x), n).value;
    over_mask_blocks(n, [&](int64_t begin, int64_t end) { loop(m, value, begin, end); });
  }
  static void backward(const char*, const at::Tensor& x, Gate gate,
                       const DropoutBackwardOperands& m) {
    const int64_t n = m.rows * m.columns;
    const cpu::DropoutLoops& loops = cpu::dropout_loops(dtype_of(x), n);
    const cpu::Loops& gates = cpu::loops(gate, dtype_of(x), n);
    const auto loop = m.up.data ? loops.glu_backward : loops.backward;
    const auto evaluate = m.up.data ? gates.value_and_derivative : gates.derivative;
    over_mask_blocks(n, [&](int64_t begin, int64_t end) { loop(m, evaluate, begin, end); });
  }
  static auto column_sums(const at::Tensor& x, Gate gate) {
    const auto sum_tile = cpu::dropout_loops(dtype_of(x), x.numel()).backward_column_sums;
    const auto derivative = cpu::loops(gate, dtype_of(x), x.numel()).derivative;
    return [=](const ColumnSums& m, auto... tile) { sum_tile(m, derivative, tile...); };
  }
};

template <>
struct DropoutKernels<Cuda> {
  static void forward(const char* op, const at::Tensor& x, Gate gate,
                      const DropoutForwardOperands& m) {
    start(op, x, cuda::dropout_forward(gate, dtype_of(x)), m);
  }
  static void backward(const char* op, const at::Tensor& x, Gate gate,
                       const DropoutBackwardOperands& m) {
    const auto find = m.up.data ? cuda::glu_dropout_backward : cuda::dropout_backward;
    start(op, x, find(gate, dtype_of(x)), m);
  }
  static cuda::BackwardColumnSums column_sums(const at::Tensor& x, Gate gate) {
    return cuda::dropout_column_sums(gate, dtype_of(x));
  }
};

}  // namespace gelu_kernels
