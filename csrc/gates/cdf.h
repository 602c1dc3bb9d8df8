// A gate with a location and a scale: y = x F(z), z = (x - loc)/scale, and its gradients
//
//   dx = dy (F(z) + x f(z)/scale),  dloc = -dy x f(z)/scale,  dscale = -dy x z f(z)/scale.
//
// A scale of 0 makes F a step, which is 1/2 at x = loc, and the gradients of loc and scale 0. A
// subnormal number counts as 0, and one above half the inverse of the smallest normal number as
// that: a GPU's quotient takes no others.
//
// A 16-bit result has its own formulas, of s = share |z|. They meet no infinity and no NaN: s is 1
// at most, where F(-a) and f(a) have vanished, and 0 where x - loc and scale are 0. A Cauchy
// distribution has no such end: its share is 0, and s is |z|, of the gradients up to a limit.
#pragma once

#include <type_traits>

#include "csrc/gates/storage.h"

namespace gelu_kernels {

// The scale that the formulas take, and its inverse.
template <class Real>
GELU_KERNELS_HD Real bounded(Real scale) {
  return at_most(scale, Number<Real>(0.5) / Format<Real>::smallest_normal);
}
template <class Real>
GELU_KERNELS_HD Real inverse_of(Real scale) {
  const auto counts_as_0 = scale < Real(Format<Real>::smallest_normal);
  return where(counts_as_0, Real(__builtin_inff()), reciprocal(scale));
}
// z for x - loc and the inverse of scale.
template <class Real>
GELU_KERNELS_HD Real standard_score(Real distance, Real inverse) {
  return where(distance == Real(0), Real(0), distance * inverse);  // not 0 times infinity
}

// What the formulas take of a location and a scale, the same for every x.
template <class Real>
struct Column {
  Real loc, extra, inverse;  // `extra` is the scale, unless a formula says otherwise
};

template <class Gate, class Precision>
constexpr bool takes_share = is_half<Precision> && Gate::share != 0;

// F and f at a z in fp32 and fp64, for a bounded scale.
template <class Gate, class Precision, class Real>
struct Point {
  Real z, distribution, density;

  GELU_KERNELS_HD Point(Real x, Real loc, Real scale, Real inverse) {
    const Real distance = x - loc;
    z = distance * inverse;  // NaN where distance and scale are 0
    const Real a = absolute(z);
    const Real tail = Gate::template tail<Precision>(a);  // F(-a)
    density = Gate::template density<Precision>(a);
    const auto is_right = Real(0) < z;
    distribution = where(is_right, difference(Real(1), tail), tail);
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
    distribution = where(distance == Real(0), Real(0.5f), distribution);
  }
};

// F, to 16 bits, right or left of the location by a distance, from F(-|z|).
template <class Real>
GELU_KERNELS_HD Real distribution_of(Real distance, Real tail) {
  return where_positive(distance, [&] { return difference(Real(1), tail); }, [&] { return tail; });
}

template <class Gate, class Precision>
struct CdfForward {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool is_value = false, has_scale = true;

  // In 16 bits `extra` is added to y with a share: -0, or a NaN that the share has not. Without one
  // it is the value at -infinity.
  template <class Real>
  static GELU_KERNELS_HD Column<Real> column(Real loc, Real scale) {
    const Real own_scale = bounded(scale), inverse = inverse_of(own_scale);
    if constexpr (takes_share<Gate, Precision>) {
      constexpr float share = Gate::template tail_share<Precision>;
      return {loc, magnitude(loc, 1.0f) * own_scale * Real(-0.0f), inverse * share};
    } else if constexpr (is_half<Precision>) {
      return {loc, own_scale * Real(Gate::left_limit), inverse};
    } else {
      return {loc, own_scale, inverse};
    }
  }
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real loc, Real extra, Real inverse) {
    if constexpr (takes_share<Gate, Precision>) {
      const Real distance = x - loc;
      const Real s = saturated_product(absolute(distance), inverse);
      const Real tail = Gate::template tail_at<Precision>(s);
      const Real finite = -at_most(-x, Storage<Precision>::largest);  // of -infinity
      return fma(finite, distribution_of(distance, tail), extra);
    } else if constexpr (is_half<Precision>) {
      const Real distance = x - loc;
      const Real a = absolute(standard_score(distance, inverse));
      const Real y = x * distribution_of(distance, Gate::template tail_at<Precision>(a));
      return where(x < Real(-Format<Real>::largest), extra, y);
    } else {
      const Point<Gate, Precision, Real> point(x, loc, extra, inverse);
      const auto is_infinite = x < Real(-Format<Real>::largest);
      return where(is_infinite, extra * Real(Gate::left_limit), x * point.distribution);
    }
  }
  template <class Real>
  static GELU_KERNELS_HD Real apply(Real x, Real loc, Real scale) {
    const Column<Real> own = column(loc, scale);
    return apply(x, own.loc, own.extra, own.inverse);
  }
};

// dx, and the terms of the sums dloc and dscale. The latter is dloc z; in 16 bits `of_scale` is
// only z scale, which `add` multiplies by dloc, and 1/scale waits for the sum.
template <class Real>
struct CdfGradients {
  Real dx, of_loc, of_scale;
};

template <class Gate, class Precision>
struct CdfBackward {
  // In 16 bits `extra` is what f is multiplied by: 1/scale, or 0 where the scale is.
  template <class Real>
  static GELU_KERNELS_HD Column<Real> column(Real loc, Real scale) {
    const Real own_scale = bounded(scale), inverse = inverse_of(own_scale);
    if constexpr (is_half<Precision>) {
      const auto is_step = Real(Format<Real>::largest) < inverse;
      const Real steepness = where(is_step, Real(0), inverse);
      constexpr float share = Gate::share == 0 ? 1 : Gate::share;
      return {loc, where(loc == loc, steepness, loc), inverse * share};
    } else {
      return {loc, own_scale, inverse};
    }
  }
  template <class Real>
  static GELU_KERNELS_HD CdfGradients<Real> apply(Real dy, Real x, Real loc, Real extra,
                                                  Real inverse) {
    if constexpr (is_half<Precision>) {
      // An infinite x counts as the largest number: the density is 0, and so are its products.
      const Real finite = clamped(x, Storage<bf16>::largest);
      const Real distance = finite - loc;
      Real s;
      if constexpr (Gate::share == 0) {
        s = clipped(absolute(distance) * inverse, Gate::distribution_limit);
      } else {
        s = saturated_product(absolute(distance), inverse);
      }
      const Distribution<Real> at = Gate::template distribution_at<Precision>(s);
      const Real distribution = distribution_of(distance, at.tail);
      const Real of_loc = dy * (at.density * extra * finite);
      return {fma(dy, distribution, of_loc), -of_loc, distance};
    } else {
      const Point<Gate, Precision, Real> point(x, loc, extra, inverse);
      // x and z may be infinite where there is no density, and the inverse if the scale is 0.
      // g++ 12 vectorises no disjunction of these.
      const auto is_step = Real(Format<Real>::largest) < inverse;
      const Real steepness = where(is_step, Real(0), point.density * inverse);
      const auto is_flat = steepness == Real(0);
      const Real slope = where(is_flat, Real(0), x * steepness);
      const Real moment = where(is_flat, Real(0), slope * point.z);
      return {dy * difference(point.distribution, -slope), -(dy * slope), -(dy * moment)};
    }
  }
  template <class Real>
  static GELU_KERNELS_HD void add(Real of_loc, Real of_scale, Real& loc_sum, Real& scale_sum) {
    loc_sum += of_loc;
    if constexpr (is_half<Precision>) {
      scale_sum = fma(of_loc, of_scale, scale_sum);
    } else {
      scale_sum += of_scale;
    }
  }
  // dscale from the sum of the terms.
  template <class Real>
  static GELU_KERNELS_HD Real finished(Real scale_sum, Real extra) {
    return is_half<Precision> ? scale_sum * extra : scale_sum;
  }
};

}  // namespace gelu_kernels
