// y = m (x + bias), m ~ Bernoulli(F(x + bias))
#include "csrc/cuda/soi/forward.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Gate, class Precision>
Error launch_soi_forward(Queue queue, const SoiForwardOperands& m) {
  constexpr auto of_elements = draw_elements<Gate, Precision, Alone>;
  constexpr auto of_rows = draw_rows<Gate, Precision, Alone>;
  constexpr auto of_biased_rows = draw_rows<Gate, Precision, WithBias>;
  using Kernels = KernelSet<of_elements, of_rows, of_biased_rows>;
  return launch_forward<Precision, Kernels, Alone<Precision>::vectors>(
      queue, m, m.bias ? of_biased_rows : of_rows, of_elements, has_vectors(m.bias));
}

template <class Gate, class Precision>
struct Entry {
  static constexpr auto value = launch_soi_forward<Gate, Precision>;
};

}  // namespace

Error (*soi_forward(Gate gate, Dtype dtype))(Queue, const SoiForwardOperands&) {
  return find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
