// y = g(x + bias), in eight bits
#include "csrc/cuda/quantized/launch.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Gate, class Precision>
struct Plain {
  static constexpr QuantizedPass launcher() {
    if constexpr (std::is_same_v<Precision, bf16>) {
      return launch_quantized<Forward<Gate, fast_bf16>, bf16, 0, TilePass::forward>;
    }
    return nullptr;
  }
  static constexpr QuantizedPass value = launcher();
};

template <class Gate, class Precision>
struct Biased {
  static constexpr QuantizedPass launcher() {
    if constexpr (can_be_quantized<Precision>) {
      return launch_quantized<AddBias<Forward<Gate, Precision>>, Precision, 1, TilePass::forward>;
    }
    return nullptr;
  }
  static constexpr QuantizedPass value = launcher();
};

}  // namespace

// A bfloat16 value without a bias comes from the special function unit (csrc/cuda/gate/forward.cu);
// in float32 the bias may be missing.
QuantizedPass quantized_forward(Gate gate, Dtype dtype, bool biased) {
  return biased || dtype == Dtype::float32 ? find<Biased>(gate, dtype) : find<Plain>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
