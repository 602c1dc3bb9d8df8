// The launchers of an element by element function, for every gate and dtype.
#pragma once

#include "csrc/cuda/map_rows.cuh"
#include "csrc/cuda/map_strided.cuh"

namespace gelu_kernels::cuda {

template <class Function, class Precision, int kColumns>
struct Launchers {
  static constexpr int kRows = RowMap<Function, Precision, kColumns>::rows;
  using Kernels =
      KernelSet<map_rows<Function, Precision, kColumns, 1>,
                map_rows<Function, Precision, kColumns, kRows>, map_strided<Function, Precision>>;
  static constexpr Map value = {launch_map_rows<Kernels, Function, Precision, kColumns>,
                                launch_map_strided<Kernels, Function, Precision>};
};

template <template <class, class> class Function>
struct MapOf {
  template <class Gate, class Precision>
  struct Plain : Launchers<Function<Gate, Precision>, Precision, 0> {};
  template <class Gate, class Precision>
  struct Biased : Launchers<AddBias<Function<Gate, Precision>>, Precision, 1> {};
};

// `Plain` is the function where there is no bias.
template <template <class, class> class Function, template <class, class> class Plain = Function>
Map find_map(Gate gate, Dtype dtype, bool biased) {
  return biased ? find<MapOf<Function>::template Biased>(gate, dtype)
                : find<MapOf<Plain>::template Plain>(gate, dtype);
}

}  // namespace gelu_kernels::cuda
