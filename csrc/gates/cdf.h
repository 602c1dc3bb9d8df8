// A gate with a location and a scale: y = x F(z), z = (x - loc)/scale, and its gradients
//
//   dx = dy (F(z) + x f(z)/scale),  dloc = -dy x f(z)/scale,  dscale = -dy x z f(z)/scale.
//
// A scale of 0 makes F a step, which is 1/2 at x = loc, and the gradients of loc and scale 0. A
// subnormal number counts as 0, and one above half the inverse of the smallest normal number as
// that: a GPU's quotient takes no others.
#pragma once

#include <type_traits>

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// The scale that the formulas take, and its inverse.
template <class Real>
GELU_KERNELS_HD Real bounded(Real scale) {
  return at_most(scale, Number<Real>(0.5) / Format<Real>::smallest_normal);
}
template <class Real>
GELU_KERNELS_HD Real inverse_of(Real scale) {
  const auto counts_as_0 = scale < Real(Format<Real>::smallest_normal);
  return where(counts_as_0, Real(__builtin_inff()), quotient(Real(1), scale));
}
// z for x - loc and the inverse of scale.
template <class Real>
GELU_KERNELS_HD Real standard_score(Real distance, Real inverse) {
  return where(distance == Real(0), Real(0), distance * inverse);  // not 0 times infinity
}

// F and f at a z, for a bounded scale.
template <class Gate, class Precision, class Real>
struct Point {
  static constexpr bool is_wide = !is_half<Precision>;
  using Wide = std::conditional_t<is_wide, Precision, fp32>;

  Real z, distribution, density;

  GELU_KERNELS_HD Point(Real x, Real loc, Real scale, Real inverse) {
    const Real distance = x - loc;
    z = distance * inverse;  // NaN where distance and scale are 0
    const Real a = absolute(z);
    const Real tail = Gate::template tail<Wide>(a);  // F(-a)
    density = Gate::template density<Wide>(a);
    const auto is_right = Real(0) < z;
    distribution = where(is_right, difference(Real(1), tail), tail);
    if constexpr (is_wide) {
      // A rounding of z changes F(z) by z^2 as much in a normal tail. What the subtraction
      // (Knuth's two-sum) and the division left over takes that back to first order.
      const Real minus_loc = distance - x;
      const Real rest = (x - (distance - minus_loc)) - (loc + minus_loc);
      const Real z_low = (fma(-z, scale, distance) + rest) * inverse;
      // The density changes about as the tail does: the tail of most distributions falls off as
      // their density, and near zero, where it does not, z_low is too small to tell.
      // The factors keep the quotient's operands from underflow.
      const Real rise = density * where(is_right, -z_low, z_low);
      const Real ratio = quotient(rise * Real(0x1p64f), tail * Real(0x1p64f));
      // Elsewhere z_low may be NaN.
      const auto is_in_tail = Real(Format<Real>::smallest_normal) < tail;
      distribution = where(is_in_tail, fma(density, z_low, distribution), distribution);
      density = where(is_in_tail, fma(density, ratio, density), density);
    }
    distribution = where(distance == Real(0), Real(0.5f), distribution);
  }
};

template <class Gate, class Precision>
struct CdfForward {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool is_value = false, has_scale = true;
  // Of a bounded scale.
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real loc, Real scale, Real inverse) {
    const Point<Gate, Precision, Real> point(x, loc, scale, inverse);
    const auto is_infinite = x < Real(-Format<Real>::largest);
    return where(is_infinite, scale * Real(Gate::left_limit), x * point.distribution);
  }
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real loc, Real scale) {
    const Real own_scale = bounded(scale);
    return apply(x, loc, own_scale, inverse_of(own_scale));
  }
};

// dx, and the terms of the sums dloc and dscale.
template <class Real>
struct CdfGradients {
  Real dx, dloc, dscale;
};

// For a bounded scale.
template <class Gate, class Precision, class Real>
GELU_KERNELS_HD CdfGradients<Real> cdf_gradients(Real dy, Real x, Real loc, Real scale,
                                                 Real inverse) {
  const Point<Gate, Precision, Real> point(x, loc, scale, inverse);
  // x and z may be infinite where there is no density, and the inverse if the scale is 0.
  // g++ 12 vectorises no disjunction of these.
  const auto is_step = Real(Format<Real>::largest) < inverse;
  const Real steepness = where(is_step, Real(0), point.density * inverse);
  const auto is_flat = steepness == Real(0);
  const Real slope = where(is_flat, Real(0), x * steepness);
  const Real moment = where(is_flat, Real(0), slope * point.z);
  return {dy * difference(point.distribution, -slope), -(dy * slope), -(dy * moment)};
}

}  // namespace gelu_kernels
