// y = m x, m ~ Bernoulli(F((x - loc)/scale))
#include "csrc/cuda/soi/forward.cuh"

namespace gelu_kernels::cuda {
namespace {

template <class Gate, class Precision>
Error launch_soi_cdf_forward(Queue queue, const SoiForwardOperands& m) {
  constexpr auto of_elements = draw_elements<Gate, Precision, WithParameters>;
  constexpr auto of_rows = draw_rows<Gate, Precision, WithParameters>;
  return launch_forward<Precision, KernelSet<of_elements, of_rows>,
                        WithParameters<Precision>::vectors>(
      queue, m, of_rows, of_elements, has_vectors(m.loc.data) && has_vectors(m.scale.data));
}

template <class Gate, class Precision>
struct Entry {
  static constexpr auto value = launch_soi_cdf_forward<Gate, Precision>;
};

}  // namespace

Error (*soi_cdf_forward(Gate gate, Dtype dtype))(Queue, const SoiForwardOperands&) {
  return find<Entry>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
