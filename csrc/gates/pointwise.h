// What the operators compute for one element: their formulas over a gate.
#pragma once

#include "csrc/gates/cdf.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels {

// The results of a function with two `outputs`.
template <class T>
struct Two {
  T first, second;
};

// `is_value` says that a result is the value of a gate for a stored x, with ties that go up (see
// Storage).
template <class Gate, class Precision>
struct Forward {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool is_value = true;
  static constexpr Ties ties = Gate::ties;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x) {
    return Gate::template value<Precision>(x);
  }
};

template <class Gate, class Precision>
struct Backward {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real dy, Real x) {
    return dy * Gate::template derivative<Precision>(x);
  }
};

template <class Gate, class Precision>
struct DoubleBackward {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real ddx, Real dy, Real x) {
    return ddx * dy * Gate::template second_derivative<Precision>(x);
  }
};

// The same of x + bias, which is not rounded to storage, so that ties in it are ordinary ones.
template <class Function>
struct AddBias {
  static constexpr int inputs = Function::inputs + 1, outputs = 1;
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

// The value y of a gate as a factor of a product that is rounded once. In 16 bits it is the zero
// that y rounds to, if it does, whatever the others are: a formula need not end in a zero. Only
// a negative y rounds to zero, for ties go up (see Storage).
template <class Precision, class Real>
GELU_KERNELS_HD Real as_factor(Real y) {
  if constexpr (is_half<Precision>) {
    // Half of the smallest number.
    return flushed(y, std::is_same_v<Precision, fp16> ? 0x1p-25f : 0x1p-134f);
  } else {
    return y;
  }
}
template <class Gate, class Precision, class Real>
GELU_KERNELS_HD Real value_as_factor(Real x) {
  return as_factor<Precision>(Gate::template value<Precision>(x));
}

// The gated linear unit: y = g(x)·up.
template <class Gate, class Precision>
struct GluForward {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real up) {
    return value_as_factor<Gate, Precision>(x) * up;
  }
};

// dx and dup. Where g and g' share an exponential, the compiler computes it once.
template <class Gate, class Precision>
struct GluBackward {
  static constexpr int inputs = 3, outputs = 2;
  static constexpr bool is_value = false;
  template <class Real>
  static GELU_KERNELS_HD Two<Real> apply(Real dy, Real x, Real up) {
    return {dy * up * Gate::template derivative<Precision>(x),
            dy * value_as_factor<Gate, Precision>(x)};
  }
};

// The numbers of a gated linear unit in general,
// y = g(min(x, limit))·(clamp(up, -limit, limit) + up_offset)·weight. A row has one weight.
template <class Number>
struct GluNumbers {
  Number limit, up_offset, weight;
};

// `apply` is `of_clamped` for x and up as they come. Where there is no limit, both are the same.
template <class Gate, class Precision>
struct GluRowsForward {
  static constexpr int inputs = 2, outputs = 1;
  template <class Number, class Real>
  static GELU_KERNELS_HD Real of_clamped(const GluNumbers<Number>& n, Real x, Real up) {
    return value_as_factor<Gate, Precision>(x) * (up + Real(n.up_offset)) * Real(n.weight);
  }
  template <class Number, class Real>
  static GELU_KERNELS_HD Real apply(const GluNumbers<Number>& n, Real x, Real up) {
    return of_clamped(n, at_most(x, n.limit), clamped(up, n.limit));
  }
};

// dx, dup, and what the element adds to the gradient of the weight.
template <class T>
struct GluGradients {
  T dx, dup, weight_term;
};
template <class Gate, class Precision>
struct GluRowsBackward {
  static constexpr int inputs = 3, outputs = 2;
  template <class Number, class Real>
  static GELU_KERNELS_HD GluGradients<Real> of_clamped(const GluNumbers<Number>& n, Real dy, Real x,
                                                       Real up) {
    const Real factor = up + Real(n.up_offset), dy_weight = dy * Real(n.weight);
    const Real value = value_as_factor<Gate, Precision>(x);
    return {dy_weight * factor * Gate::template derivative<Precision>(x), dy_weight * value,
            dy * factor * value};
  }
  template <class Number, class Real>
  static GELU_KERNELS_HD GluGradients<Real> apply(const GluNumbers<Number>& n, Real dy, Real x,
                                                  Real up) {
    const auto y = of_clamped(n, dy, at_most(x, n.limit), clamped(up, n.limit));
    const Real dup = unless_above(-up, n.limit, unless_above(up, n.limit, y.dup));
    return {unless_above(x, n.limit, y.dx), dup, y.weight_term};
  }
};

// From stored numbers to a stored one, or to Two.
template <class Function, class Precision, class... Inputs>
GELU_KERNELS_HD auto apply(Inputs... in) {
  using S = Storage<Precision>;
  const auto y = Function::apply(S::load(in)...);
  if constexpr (Function::outputs == 2) {
    return Two<StorageOf<Precision>>{S::store(y.first), S::store(y.second)};
  } else if constexpr (Function::is_value) {
    return S::store_value(y);
  } else {
    return S::store(y);
  }
}

}  // namespace gelu_kernels
