// The launchers of the passes whose results are quantised, for every gate and the dtypes that they
// take.
#pragma once

#include "csrc/cuda/quantized/rows.cuh"
#include "csrc/cuda/quantized/tiles.cuh"

namespace gelu_kernels::cuda {

template <class Precision>
constexpr bool can_be_quantized =
    std::is_same_v<Precision, bf16> || std::is_same_v<Precision, fp32>;

template <class Function, class Precision, int kColumns>
Error launch_quantized_forward(Queue queue, const QuantizedOperands& m) {
  using Kernels = KernelSet<quantize_tiles<Function, Precision, kColumns, TilePass::forward>,
                            quantize_rows<Function, Precision, kColumns>>;
  return m.quantization.scaling == Scaling::RowWise
             ? launch_quantize_rows<Kernels, Function, Precision, kColumns>(queue, m)
             : launch_quantize_tiles<Kernels, Function, Precision, kColumns, TilePass::forward>(
                   queue, m);
}

template <class Function, class Precision, int kColumns, TilePass pass>
Error launch_quantized_backward(Queue queue, const QuantizedOperands& m) {
  using Kernels = KernelSet<quantize_tiles<Function, Precision, kColumns, pass>>;
  return launch_quantize_tiles<Kernels, Function, Precision, kColumns, pass>(queue, m);
}

}  // namespace gelu_kernels::cuda
