// The launchers of an element by element function, with and without a bias.
#pragma once

#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/map_strided.cuh"

namespace gelu_kernels::cuda {

template <class Function, class Precision>
struct MapEntry {
  static constexpr Map value = {launch_map_rows<Function, Precision, false>,
                                launch_map_strided<Function, Precision>};
};

template <class Function, class Precision>
struct BiasedMapEntry {
  static constexpr Map value = {launch_map_rows<AddBias<Function>, Precision, true>,
                                launch_map_strided<AddBias<Function>, Precision>};
};

}  // namespace gelu_kernels::cuda
