// The gate of the GELU: g(x) = x Phi(x), Phi the normal distribution function and phi its density.
//
// With a = |x|: g(x) = max(x, 0) - a Phi(-a); g'(x) = D(a) for x < 0 and 1 - D(a) for x > 0, where
// D(a) = Phi(-a) - a phi(a). Nothing cancels, once the root of D is taken out as a factor.
#pragma once

#include "csrc/gates/arithmetic.h"
#include "csrc/gates/coefficients/exp2.h"
#include "csrc/gates/coefficients/normal.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels {

struct Normal {
  static constexpr Ties ties = Ties::kNone;

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real value(Real x) {
    using C = NormalConstants<Precision>;
    if constexpr (std::is_same_v<Precision, fast_bf16>) {
      using Half = NormalConstants<bf16>;
      // Near zero the power is under 1/2 in spite of the unit's error, as 2^-19 makes up for four
      // times that, and the value is above x/2, where ties of x/2 go (see Storage).
      constexpr float offset = Half::log2_scale - 1 - 0x1p-19f;
      const Real a = magnitude(x, Half::value_limit);
      const Real power = approximate_exp2(fma(normal_log2_cdf(bf16(), a), a, offset));
      return fma(-(a * Half::unscale), power, positive_part(x));
    } else if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, C::value_limit);
      Real power = value_power<Precision>(a);
      // Near zero it is 1/2, and y has no rounding but its last; in fp16 it is a little less than
      // 1/2 (see Storage<fp16>).
      if constexpr (C::one > 1) power = at_most(power, 0x1.fffffcp-2f);
      // Of pairs of floats the compiler leaves a product with 1.
      const Real scaled = C::unscale == 1 ? a : a * C::unscale;
      return fma(-scaled, power, positive_part(x));
    } else {
      const Real a = magnitude(x, C::limit);
      // z = a b / (a + b) with b = value_pole. This form damps the roundings of the sum and of the
      // quotient by a/b; for large a, where that is no help, z hardly changes a Phi(-a) e^(a^2/2).
      const Real z = fma(-a, quotient(a, a + C::value_pole), a);
      const Real tail = z * scaled_gaussian<Precision>(normal_value_factor(z), a);
      return fma(tail, -C::unscale, positive_part(x));
    }
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative(Real x) {
    using C = NormalConstants<Precision>;
    if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, C::derivative_limit);
      const Real distance = fma(-a, C::slope * C::unscale, 0.5f * C::unscale);
      // Far from zero 2^n is a zero, which `scale_by_power_of_two` would not come to.
      const Exponent<Real> u = exponent(normal_log2_derivative(Precision(), a), a,
                                        C::log2_scale + Format<float>::exponent_bias);
      const Real power = power_of_two(u.shifted) * exp2<Precision>(u.fraction);
      return where_positive(
          x, [&] { return fma(-distance, power, Real(1)); }, [&] { return distance * power; });
    } else {
      const Real a = magnitude(x, C::limit);
      const Real distance = fma(-a, C::unscale, C::root_hi * C::unscale) + C::root_lo * C::unscale;
      const Real factor = normal_derivative_factor(quotient(a, a + C::derivative_pole));
      const Real d = scaled_gaussian<Precision>(factor, a);
      return where_positive(
          x, [&] { return fma(-distance, d, Real(1)); }, [&] { return distance * d; });
    }
  }

  // D(a) is Phi(-a) of the value times a polynomial, or Phi(-a) - a phi(a), which have one
  // e^(-a^2/2). The error is 2^-17.4 in bf16, 2^-20.1 in fp16 and 2^-23 in fp32 (see codebook.h).
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative_to_encode(Real x) {
    using C = NormalConstants<Precision>;
    Real d;
    if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, C::value_limit);
      d = value_power<Precision>(a) * normal_derivative_ratio(Precision(), a);
    } else {
      const Real a = magnitude(x, C::limit);
      const Real part = quotient(a, a + C::value_pole);
      const Real tail =
          normal_value_factor(fma(-a, part, a)) * fma(part, -C::unscale, Real(C::unscale));
      d = scaled_gaussian<Precision>(fma(a, -C::density * C::unscale, tail), a);
    }
    return where_positive(x, [&] { return difference(Real(1), d); }, [&] { return d; });
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real second_derivative(Real x) {
    using Wide = std::conditional_t<is_half<Precision>, fp32, Precision>;
    using C = NormalConstants<Wide>;
    const Real a = magnitude(x, C::limit);
    const Real factor = normal_density_factor(a * a) * fma(-a, a, Real(2));
    return scaled_gaussian<Wide>(factor, a) * C::unscale;
  }

  // F(-a) and F'(a) for a >= 0, in fp32 and fp64.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail(Real a) {
    using C = NormalConstants<Precision>;
    const Real b = magnitude(a, C::limit);
    const Real rest = quotient(Real(C::value_pole), b + C::value_pole);
    return scaled_gaussian<Precision>(normal_value_factor(b * rest) * rest, b) * C::unscale;
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real density(Real a) {
    using C = NormalConstants<Precision>;
    const Real b = magnitude(a, C::limit);
    return scaled_gaussian<Precision>(normal_density_factor(b * b), b) * C::unscale;
  }
  static constexpr double left_limit = -0.0;  // the value at -infinity

  // The same for 16-bit results, from s = share a: see cdf.h. With the first share F(-a) is a
  // power, with the second the density times Mills's ratio.
  template <class Precision>
  static constexpr float tail_share = std::is_same_v<Precision, fp16> ? 0x1p-3f : 0x1p-4f;
  static constexpr float share = NormalConstants<fp32>::share;
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail_at(Real s) {
    const Real h = normal_tail_log2(Precision(), s);
    if constexpr (std::is_same_v<Precision, fp16>) {
      const Exponent<Real> u = exponent(h, s, -1);
      return scale_by_power_of_two(exp2<Precision>(u.fraction), u.shifted);
    } else {
      const Exponent<Real> u = exponent(h, s, 66 - 1);
      return scale_by_power_of_two(exp2<Precision>(u.fraction), u.shifted) * 0x1p-66f;
    }
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Distribution<Real> distribution_at(Real s) {
    constexpr float slope = -NormalConstants<fp32>::half_log2e / (share * share);
    const Exponent<Real> u = exponent(s * s, Real(slope), 64);
    const Real power = scale_by_power_of_two(normal_density_exp2(u.fraction), u.shifted);
    const Real density = power * 0x1p-64f;
    const Real ratio = normal_ratio(reciprocal(s + NormalConstants<fp32>::ratio_pole));
    return {density * ratio, density};
  }

  // Whether u < 2^32 Phi(-|x|) - 1, for an integer u >= 0; never for NaN. The probability has an
  // absolute error of less than 2e-6. No special function unit: random masks are to be the same on
  // every machine.
  template <class Real>
  static GELU_KERNELS_HD auto in_tail(Real x, Real u) {
    return u < tail_threshold(x);
  }
  template <class Real>
  static GELU_KERNELS_HD Real tail_threshold(Real x) {
    const Real a = magnitude_or_limit(x, NormalConstants<fp32>::tail_limit);
    const Real root = normal_tail_root(a);
    const Real power_2 = root * root, power_4 = power_2 * power_2, power_8 = power_4 * power_4;
    return fma(power_8, power_8, Real(-1));
  }

  // F(x) by the special function unit, and its error, with the threshold's own of `in_tail`.
  static constexpr float estimate_error = 0x1.6p-16f;
  template <class Real>
  static GELU_KERNELS_HD Real distribution_estimate(Real x) {
    return approximate_logistic(x * normal_logit(at_most(x * x, 16.0f)));
  }

  // F, F' and g'' as formulas over any type that has erfc, exp and clamp of its own: over
  // at::Tensor, they can be differentiated further.
  template <class T>
  static T distribution_formula(const T& x) {
    return erfc(x * -0.7071067811865476) * 0.5;
  }
  template <class T>
  static T density_formula(const T& x) {
    const T y = clamp(x, -40, 40);  // beyond, F' is 0 in any precision
    return exp(y * y * -0.5) * 0.3989422804014327;
  }
  template <class T>
  static T second_derivative_formula(const T& x) {
    const T y = clamp(x, -40, 40);  // beyond, g'' is 0 in any precision
    return exp(y * y * -0.5) * (2 - y * y) * 0.3989422804014327;
  }

 private:
  // Phi(-a) / unscale for 16-bit results.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real value_power(Real a) {
    constexpr float offset = NormalConstants<Precision>::log2_scale - 1;
    const Exponent<Real> u = exponent(normal_log2_cdf(Precision(), a), a, offset);
    return scale_by_power_of_two(normal_value_exp2(Precision(), u.fraction), u.shifted);
  }

  // An exponent n + fraction, |fraction| <= 1/2; `shifted` has n in its low bits.
  template <class Real>
  struct Exponent {
    Real shifted, fraction;
  };

  // h a + offset.
  template <class Real>
  static GELU_KERNELS_HD Exponent<Real> exponent(Real h, Real a, float offset) {
    const float origin = Format<float>::round_to_integer + offset;
    const Real shifted = fma(h, a, origin);
    return {shifted, fma(h, a, origin - shifted)};
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real exp2(Real f) {
    if constexpr (std::is_same_v<Precision, bf16>) {
      return exp2_polynomial_4(f);
    } else {
      return exp2_polynomial_5(f);
    }
  }

  // y 2^(-k a^2) / unscale, k = log2(e)/2 rounded to Real: the fit of y makes up for that rounding.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real scaled_gaussian(Real y, Real a) {
    using C = NormalConstants<Precision>;
    const Real s = a * a;
    const Real s_low = fma(a, a, -s);
    const Real shifted = fma(s, -C::half_log2e, C::origin);
    const Real f = fma(s_low, -C::half_log2e, fma(s, -C::half_log2e, C::origin - shifted));
    const Real scaled = y * power_of_two(shifted);
    // Not scaled * 2^f: 2^f - 1 has the smaller rounding error.
    return fma(scaled, exp2m1_polynomial(f), scaled);
  }
};

}  // namespace gelu_kernels
