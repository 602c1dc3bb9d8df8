// y = x, in eight bits
#include "csrc/cuda/quantized/launch.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Precision>
constexpr QuantizedPass launcher =
    launch_quantized<Cast<Normal, Precision>, Precision, 0, TilePass::backward>;

}  // namespace

QuantizedPass quantized_cast(Gate, Dtype dtype, bool) {
  return dtype == Dtype::bfloat16  ? launcher<bf16>
         : dtype == Dtype::float32 ? launcher<fp32>
                                   : nullptr;
}

}  // namespace gelu_kernels::cuda
