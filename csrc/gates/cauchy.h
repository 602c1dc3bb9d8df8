// The gate of the Cauchy distribution: g(x) = x F(x) with F(x) = 1/2 + atan(x)/pi and the density
// F'(x) = 1 / (pi (1 + x^2)). For x -> -inf it tends to -1/pi, as the ELU with alpha = 1/pi does.
//
// With a = |x|: g(x) = max(x, 0) - a F(-a); g'(x) = D(a) for x < 0 and 1 - D(a) for x > 0, where
// D(a) = F(-a) - a F'(a) falls as 2 / (3 pi a^3) and has no root. g''(x) = 2 pi F'(x)^2.
//
// Formulas are chosen by whether a is near zero or far from it. That is a select, never a branch:
// processors compute both in vectors.
#pragma once

#include <cmath>

#include "csrc/gates/arithmetic.h"
#include "csrc/gates/coefficients/cauchy.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels {

struct Cauchy {
  static constexpr Ties ties = Ties::kSubnormal;

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real value(Real x) {
    using C = Constants<Precision>;
    if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, C::half_limit);
      const Real f = half_tail<Precision>(a, C::one_over_pi, C::one_over_pi);
      return fma(-a, f, positive_part(x));
    } else {
      // Far from zero a F(-a) = atan(1/a) / (pi / a) has no other rounding than the polynomial's.
      const Real a = magnitude(x, C::limit);
      const Real q = small_argument<C>(a);
      const auto is_far = Real(C::split) < a;
      const Real p = cauchy_arctangent(q * q);
      const Real factor = where(is_far, Real(1), a);
      return fma(-factor, where(is_far, p, fma(-q, p, Real(0.5))), positive_part(x));
    }
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative(Real x) {
    using C = Constants<Precision>;
    Real d;
    if constexpr (is_half<Precision>) {
      d = half_tail<Precision>(magnitude(x, C::half_limit), C::two_over_pi, 0);
    } else {
      d = derivative_tail<C>(magnitude(x, C::limit));
    }
    return where_positive(x, [&] { return Real(1) - d; }, [&] { return d; });
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative_to_encode(Real x) {
    return derivative<Precision>(x);
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real second_derivative(Real x) {
    using C = Constants<Precision>;
    const Real r = inverse_square<C>(magnitude(x, C::limit));
    return r * C::two_over_pi * r;
  }

  // F(-a) for a >= 0, down to zero at infinity, in fp32 and fp64.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail(Real a) {
    using C = Constants<Precision>;
    // Beyond `huge` F(-a) is 1 / (pi a), to the last place, and 1/a need not be a normal number.
    const Real scale = where(Real(C::huge) < a, Real(C::huge_scale), Real(1));
    const Real b = at_most(a * scale, C::limit);
    const Real q = small_argument<C>(b);
    return arctangent_tail(Real(C::split) < b, q, cauchy_arctangent(q * q)) * scale;
  }

  // F'(a), or 0 where that is not a normal number.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real density(Real a) {
    using C = Constants<Precision>;
    return inverse_square<C>(a) * C::one_over_pi;
  }
  static constexpr double left_limit = -0.3183098861837907;  // the value at -infinity

  // The same for 16-bit results: see cdf.h. Both tails end in a zero, one at infinity and one, with
  // the density, at the limit.
  static constexpr float share = 0, distribution_limit = 0x1p62f;
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail_at(Real a) {
    const auto is_far = Real(1) < a;
    const Real q = where(is_far, half_inverse<Precision>(a), a);
    return arctangent_tail(is_far, q, cauchy_half_arctangent(q * q));
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Distribution<Real> distribution_at(Real a) {
    using C = Constants<Precision>;
    const Real r = reciprocal(fma(a, a, Real(1))) - Real(0x1p-124f);
    return {half_tail<fp16>(a, r, C::one_over_pi, C::one_over_pi), r * C::one_over_pi};
  }

  // Whether u < 2^32 F(-|x|) - 1, for an integer u >= 0; never for NaN. The probability has an
  // absolute error of less than 2e-6. F is a quotient of polynomials, but this needs no division.
  template <class Real>
  static GELU_KERNELS_HD auto in_tail(Real x, Real u) {
    const Real a = magnitude_or_limit(x, CauchyConstants<fp32>::tail_limit);
    const Real denominator = cauchy_tail_denominator(a);
    return fma(u, denominator, denominator) < cauchy_tail_numerator(a);
  }
  // The threshold that u is compared with, but for roundings.
  template <class Real>
  static GELU_KERNELS_HD Real tail_threshold(Real x) {
    const Real a = magnitude_or_limit(x, CauchyConstants<fp32>::tail_limit);
    return quotient(cauchy_tail_numerator(a), cauchy_tail_denominator(a)) - Real(1);
  }

  // F(x) by the special function unit, and its error, with the threshold's own of `in_tail`.
  static constexpr float estimate_error = 0x1.4p-15f;
  template <class Real>
  static GELU_KERNELS_HD Real distribution_estimate(Real x) {
    const Real a = magnitude(x, 0x1p32f);  // whose third power is finite
    const Real tail =
        cauchy_estimate_numerator(a) * approximate_reciprocal(cauchy_estimate_denominator(a));
    return where_positive(x, [&] { return Real(1) - tail; }, [&] { return tail; });
  }

  // F, F' and g'' as formulas over any type that has such functions of its own: over at::Tensor,
  // they can be differentiated further.
  template <class T>
  static T distribution_formula(const T& z) {
    return atan2(ones_like(z), -z) * 0.3183098861837907;  // 1/2 + atan(z)/pi would cancel
  }
  template <class T>
  static T density_formula(const T& z) {
    return 0.3183098861837907 / (1 + z * z);
  }
  template <class T>
  static T second_derivative_formula(const T& x) {
    const T y = nan_to_num(x, NAN);  // infinity becomes finite, where g'' is 0 too
    const T d = 1 + y * y;
    return 0.6366197723675814 / d / d;
  }

 private:
  // 16-bit results are evaluated in float.
  template <class Precision>
  using Constants = CauchyConstants<std::conditional_t<is_half<Precision>, fp32, Precision>>;

  // 1 / (1 + a^2), or 0 where that is so small that a GPU's unit takes it for zero.
  template <class C, class Real>
  static GELU_KERNELS_HD Real inverse_square(Real a) {
    return where(Real(C::square_limit) < a, Real(0), reciprocal(fma(a, a, Real(1))));
  }

  // The argument q of atan: a near zero, else 1/a.
  template <class C, class Real>
  static GELU_KERNELS_HD Real small_argument(Real a) {
    return where(Real(C::split) < a, reciprocal(a), a);
  }

  // F(-a) from the argument of atan and the quotient of the two, over pi.
  template <class Bool, class Real>
  static GELU_KERNELS_HD Real arctangent_tail(Bool is_far, Real q, Real quotient) {
    const Real half = where(is_far, Real(0), Real(0.5));
    return fma(where(is_far, q, -q), quotient, half);
  }

  // 1/a, for a > 1, which may be subnormal or 0. In fp16 no finite |z| is over 2^42.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real half_inverse(Real a) {
    if constexpr (std::is_same_v<Precision, fp16>) {
      return reciprocal(at_most(a, 0x1p125f));
    } else {
      const Real scaled = reciprocal(at_most(a * 0x1p-20f, 0x1p126f)) - Real(0x1p-126f);
      return scaled * 0x1p-20f;
    }
  }

  // D: near zero 1/2 - 2 a/pi + a^3 R(a^2), far from it q^3 Q(q^2). q^2 is s + `error`, which makes
  // up for the rounding of q too.
  template <class C, class Real>
  static GELU_KERNELS_HD Real derivative_tail(Real a) {
    const Real q = small_argument<C>(a);
    const Real s = q * q;
    const auto is_far = Real(C::split) < a;
    const Real near = cauchy_derivative_near(fma(q, q, Real(-C::near_centre)));
    const Real far = cauchy_derivative_far(fma(q, q, Real(-C::far_centre)));
    const Real y = q * where(is_far, far, near);
    const Real relative_error = where(is_far, fma(-a, q, Real(1)) * 3, Real(0));
    const Real error = fma(relative_error, s, fma(q, q, -s));
    const Real linear = where(is_far, Real(0), fma(-q, Real(C::two_over_pi), Real(0.5)));
    return fma(y, s, fma(y, error, linear));
  }

  // F(-a) and D(a) for 16-bit results. With sin(t) = 1 / sqrt(1 + a^2) and w = sin(t) cos(t) =
  // a / (1 + a^2), F(-a) = t/pi = w (1/pi + rho T(rho)) and D(a) = (t - w)/pi = w rho T(rho), where
  // rho = sin(t)^2. Near zero cos(t) takes the place of sin(t): then F(-a) = 1/2 - w (1/pi + rho
  // T(rho)) and D(a) = 1/2 - w (2/pi + rho T(rho)). One T serves all of them. r is 1 / (1 + a^2).
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real half_tail(Real a, Number<Real> near, Number<Real> far) {
    return half_tail<Precision>(a, reciprocal(fma(a, a, Real(1))), near, far);
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real half_tail(Real a, Real r, Number<Real> near, Number<Real> far) {
    using Half = std::conditional_t<std::is_same_v<Precision, fp16>, fp16, bf16>;
    const Real w = a * r;
    const auto is_far = Real(1) < a;
    const Real rho = where(is_far, r, a * w);
    const Real t = cauchy_arcsine(Half(), rho);
    const Real angle = fma(rho, t, where(is_far, Real(far), Real(near)));
    const Real half = where(is_far, Real(0), Real(0.5));
    return fma(where(is_far, w, -w), angle, half);
  }
};

}  // namespace gelu_kernels
