// What the operators compute for one element: their formulas over a gate.
#pragma once

#include "csrc/gates/storage.h"

namespace gelu_kernels {

// `is_value` says that a result is the value of a gate for a stored x, with ties that go up (see
// Storage).
template <class Gate, class Precision>
struct Forward {
  static constexpr int inputs = 1;
  static constexpr bool is_value = true;
  static constexpr bool may_tie = Gate::may_tie;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x) {
    return Gate::template value<Precision>(x);
  }
};

template <class Gate, class Precision>
struct Backward {
  static constexpr int inputs = 2;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real dy, Real x) {
    return dy * Gate::template derivative<Precision>(x);
  }
};

template <class Gate, class Precision>
struct DoubleBackward {
  static constexpr int inputs = 3;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real ddx, Real dy, Real x) {
    return ddx * dy * Gate::template second_derivative<Precision>(x);
  }
};

// The same of x + bias, which is not rounded to storage, so that ties in it are ordinary ones.
template <class Function>
struct AddBias {
  static constexpr int inputs = Function::inputs + 1;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real bias) {
    return Function::apply(x + bias);
  }
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real dy, Real x, Real bias) {
    return Function::apply(dy, x + bias);
  }
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real ddx, Real dy, Real x, Real bias) {
    return Function::apply(ddx, dy, x + bias);
  }
};

// From stored numbers to a stored one.
template <class Function, class Precision, class... Inputs>
GELU_KERNELS_HD StorageOf<Precision> apply(Inputs... in) {
  const auto y = Function::apply(Storage<Precision>::load(in)...);
  if constexpr (Function::is_value) return Storage<Precision>::store_value(y);
  return Storage<Precision>::store(y);
}

}  // namespace gelu_kernels
