// The launchers of an element by element function, for every gate and dtype.
#pragma once

#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/map_strided.cuh"

namespace gelu_kernels::cuda {

template <template <class, class> class Function>
struct MapOf {
  template <class Gate, class Precision>
  struct Plain {
    using F = Function<Gate, Precision>;
    static constexpr Map value = {launch_map_rows<F, Precision, false>,
                                  launch_map_strided<F, Precision>};
  };
  template <class Gate, class Precision>
  struct Biased {
    using F = AddBias<Function<Gate, Precision>>;
    static constexpr Map value = {launch_map_rows<F, Precision, true>,
                                  launch_map_strided<F, Precision>};
  };
};

// `Plain` is the function where there is no bias.
template <template <class, class> class Function, template <class, class> class Plain = Function>
Map find_map(Gate gate, Dtype dtype, bool biased) {
  return biased ? find<MapOf<Function>::template Biased>(gate, dtype)
                : find<MapOf<Plain>::template Plain>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
