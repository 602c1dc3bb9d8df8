// dx = dy·g'(x + bias), in eight bits, and the column sums of dx
#include "csrc/cuda/quantized/launch.cuh"

namespace gelu_kernels::cuda {
namespace {

// The bias may be missing.
template <class Gate, class Precision>
struct Entry {
  static Error launch_for(Queue queue, const QuantizedOperands& m) {
    using Function = AddBias<Backward<Gate, Precision>>;
    const auto launcher = m.partials ? launch_quantized_sums<Function, Precision, 1>
                                     : launch_quantized<Function, Precision, 1, TilePass::backward>;
    return launcher(queue, m);
  }
  static constexpr QuantizedPass launcher() {
    if constexpr (can_be_quantized<Precision>) return launch_for;
    return nullptr;
  }
  static constexpr QuantizedPass value = launcher();
};

}  // namespace

QuantizedPass quantized_backward(Gate gate, Dtype dtype, bool) { return find<Entry>(gate, dtype); }

}  // namespace gelu_kernels::cuda
