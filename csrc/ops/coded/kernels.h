// The kernels of a coded derivative on each device.
#pragma once

#include "csrc/cpu/coded_loops.h"
#include "csrc/ops/device/column_sums.h"
#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/cuda.h"

namespace gelu_kernels {

template <class Device>
struct CodedKernels;

template <>
struct CodedKernels<Cpu> {
  static void forward(const char*, const at::Tensor& x, Gate gate, const CodedForwardOperands& m) {
    const auto evaluate = cpu::loops(gate, dtype_of(x), x.numel()).value_and_derivative_to_encode;
    const auto loop = cpu::coded_loops(dtype_of(x), x.numel()).forward;
    over_mask_blocks(m.rows * m.columns,
                     [&](int64_t begin, int64_t end) { loop(m, evaluate, begin, end); });
  }
  static void backward(const char*, const at::Tensor& dy, const CodedBackwardOperands& m) {
    const auto loop = cpu::coded_loops(dtype_of(dy), dy.numel()).backward;
    over_mask_blocks(m.rows * m.columns, [&](int64_t begin, int64_t end) { loop(m, begin, end); });
  }
  static cpu::BackwardColumnSums column_sums(const at::Tensor& dy) {
    return cpu::coded_loops(dtype_of(dy), dy.numel()).backward_column_sums;
  }
};

template <>
struct CodedKernels<Cuda> {
  static void forward(const char* op, const at::Tensor& x, Gate gate,
                      const CodedForwardOperands& m) {
    start(op, x, cuda::coded_forward(gate, dtype_of(x)), m);
  }
  static void backward(const char* op, const at::Tensor& dy, const CodedBackwardOperands& m) {
    start(op, dy, cuda::coded_backward(dtype_of(dy)), m);
  }
  static cuda::BackwardColumnSums column_sums(const at::Tensor& dy) {
    return cuda::coded_backward_column_sums(dtype_of(dy));
  }
};

}  // namespace gelu_kernels
