// y = g(min(x, limit))·(clamp(up, -limit, limit) + up_offset)·weight, in eight bits
#include "csrc/cuda/quantized/launch.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Gate, class Precision>
struct Entry {
  static constexpr QuantizedPass launcher() {
    if constexpr (can_be_quantized<Precision>) {
      return launch_quantized<GluRowsForward<Gate, Precision>, Precision, 0, TilePass::forward>;
    }
    return nullptr;
  }
  static constexpr QuantizedPass value = launcher();
};

}  // namespace

QuantizedPass quantized_glu_forward(Gate gate, Dtype dtype, bool) {
  return find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
