// What the loops compute for one element: the operators' formulas over a gate, from loaded numbers
// to a stored one.
#pragma once

#include "csrc/cpu/storage.h"

namespace gelu_kernels::cpu {

template <class Gate, class Precision>
struct Forward {
  static constexpr int inputs = 1;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real x) {
    return Storage<Precision>::store_value(Gate::template value<Precision>(x));
  }
};

// The sum x + bias is not rounded to storage, and ties in it are ordinary ones.
template <class Gate, class Precision>
struct ForwardBias {
  static constexpr int inputs = 2;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real x, Real bias) {
    return Storage<Precision>::store(Gate::template value<Precision>(x + bias));
  }
};

template <class Gate, class Precision>
struct Backward {
  static constexpr int inputs = 2;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real dy, Real x) {
    return Storage<Precision>::store(dy * Gate::template derivative<Precision>(x));
  }
};

template <class Gate, class Precision>
struct BackwardBias {
  static constexpr int inputs = 3;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real dy, Real x, Real bias) {
    return Backward<Gate, Precision>::apply(dy, x + bias);
  }
};

template <class Gate, class Precision>
struct DoubleBackward {
  static constexpr int inputs = 3;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real ddx, Real dy, Real x) {
    return Storage<Precision>::store(ddx * dy * Gate::template second_derivative<Precision>(x));
  }
};

template <class Gate, class Precision>
struct DoubleBackwardBias {
  static constexpr int inputs = 4;
  using Real = typename Precision::Real;
  static GELU_KERNELS_HD auto apply(Real ddx, Real dy, Real x, Real bias) {
    return DoubleBackward<Gate, Precision>::apply(ddx, dy, x + bias);
  }
};

}  // namespace gelu_kernels::cpu
