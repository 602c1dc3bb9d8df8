// Gates x sigmoid(v(x)) with an odd polynomial v(x) = k1 x + k3 x^3.
//
// With a = |x| and E = exp(-v(a)), which never overflows, the sigmoid of -v(a) is F = E / (1 + E),
// and g(x) = max(x, 0) - a F. g'(x) = D(a) for x < 0 and 1 - D(a) for x > 0, where D(a) = F - a
// v'(a) F (1 - F); g'' is even. E and the 1 that is added to it are both kept times `scale`: the
// factor cancels in the quotients, and E stays a normal number where g underflows.
#pragma once

#include "csrc/gates/arithmetic.h"
#include "csrc/gates/coefficients/exp2.h"
#include "csrc/gates/coefficients/logistic_of_cubic.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels {

// Constants<float> and Constants<double> are for results in that type, Constants<fp16> for 16-bit
// ones.
template <template <class> class Constants>
struct LogisticOfCubic {
  static constexpr Ties ties = Ties::kNone;

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real value(Real x) {
    using C = Constants<Number<Real>>;
    const auto a = magnitude(x, C::limit);
    if constexpr (std::is_same_v<Precision, fast_bf16> && (C::k3_hi != 0 || limits_tail)) {
      // sigmoid(1.702 x) has one hard case, x = -0.1235, that its errors would turn.
      return fma(-a, approximate_tail(a), positive_part(x));
    } else if constexpr (is_half<Precision>) {
      return fma(-a, half_tail(a), positive_part(x));
    } else {
      // a F would not do: F loses bits to underflow before the product does.
      const auto e = scaled_exponential(a);
      return positive_part(x) - quotient(a * e, C::scale + e);
    }
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative(Real x) {
    using C = Constants<Number<Real>>;
    const auto a = magnitude(x, C::limit);
    Real tail;
    if constexpr (is_half<Precision>) {
      tail = half_derivative_tail(a);
    } else {
      tail = derivative_tail(a);
    }
    return where_positive(x, [&] { return Real(1) - tail; }, [&] { return tail; });
  }

  // D is that of 16-bit results, from the E of the value; the error is 2^-23 (see codebook.h).
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative_to_encode(Real x) {
    if constexpr (is_half<Precision>) {
      return derivative<Precision>(x);
    } else {
      using C = Constants<Number<Real>>;
      const Real a = magnitude(x, C::limit);
      const Real e = scaled_exponential(a), f = e * reciprocal(C::scale + e);
      const Real tail = fma(-a * even(a, C::slope_0, C::slope_2), fma(-f, f, f), f);
      return where_positive(x, [&] { return Real(1) - tail; }, [&] { return tail; });
    }
  }

  // E (2 v' + a v'' - a v'^2 (1 - E) / (1 + E)) / (1 + E)^2.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real second_derivative(Real x) {
    using C = Constants<Number<Real>>;
    const Real a = magnitude(x, C::limit);
    const Real e = scaled_exponential(a);
    const Real slope = even(a, C::slope_0, C::slope_2);
    const Real sum = C::scale + e;
    const Real bracket = difference(even(a, 2 * C::slope_0, 4 * C::slope_2) * sum,
                                    a * slope * slope * (C::scale - e));
    return quotient(e * bracket, sum * sum * fma(e, 1 / C::scale, Real(1)));
  }

  // F(-a) and F'(a) = v'(a) F (1 - F) for a >= 0, in fp32 and fp64. They share scale F.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail(Real a) {
    const Real b = until_underflow(a);
    // E of NaN is any number: the integer that makes a power of two may change a NaN's exponent.
    return fma(b, Real(0), scaled_tail(b) * (1 / Constants<Number<Real>>::scale));
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real density(Real a) {
    using C = Constants<Number<Real>>;
    const Real b = until_underflow(a), f = scaled_tail(b);
    const Real y = even(b, C::slope_0, C::slope_2) * fma(f * (-1 / C::scale), f, f);
    return fma(b, Real(0), y * (1 / C::scale));
  }
  static constexpr double left_limit = -0.0;  // the value at -infinity

  // The same for 16-bit results, from s = share a: see cdf.h.
  static constexpr float share = Constants<fp16>::share;
  template <class Precision>
  static constexpr float tail_share = share;
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail_at(Real s) {
    using C = Constants<fp16>;
    const Exponent<Real> u = exponent(-s, even(s, C::share_k1, C::share_k3), 64);
    Real power;
    if constexpr (std::is_same_v<Precision, bf16>) {
      power = exp2_polynomial_4(u.fraction);
    } else {
      power = exp2_polynomial_5(u.fraction);
    }
    const Real e = scale_by_power_of_two(power, u.shifted);
    return e * reciprocal(e + Real(0x1p64f));
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Distribution<Real> distribution_at(Real s) {
    using C = Constants<fp16>;
    const Real f = tail_at<fp16>(s);
    return {f, fma(-f, f, f) * even(s, C::share_slope_0, C::share_slope_2)};
  }

  // Whether u < (2^32 + 1) F(-|x|) - 1, for an integer u >= 0; never for NaN. The probability has
  // an absolute error of less than 2e-6. As F = 1 / (1 + 1/E), this needs no division.
  template <class Real>
  static GELU_KERNELS_HD auto in_tail(Real x, Real u) {
    const Real inverse = inverse_exponential(x);
    return fma(u, inverse, inverse) < Real(0x1p32f) - u;
  }
  // The threshold that u is compared with, but for roundings.
  template <class Real>
  static GELU_KERNELS_HD Real tail_threshold(Real x) {
    const Real inverse = inverse_exponential(x);
    return quotient(Real(0x1p32f) - inverse, inverse + Real(1));
  }

  // F(x) by the special function unit, and its error, with the threshold's own of `in_tail`.
  static constexpr float estimate_error = 0x1p-18f;
  template <class Real>
  static GELU_KERNELS_HD Real distribution_estimate(Real x) {
    using C = Constants<fp16>;
    return approximate_logistic(x * even(x, -C::k1, -C::k3));
  }

  // F, F' and g'' as formulas over any type that has sigmoid and clamp of its own: over at::Tensor,
  // they can be differentiated further.
  template <class T>
  static T distribution_formula(const T& x) {
    using C = Constants<double>;
    const T y = clamp(x, -C::limit, C::limit);  // beyond, F is 0 or 1 in any precision
    return sigmoid(y * (y * y * (C::slope_2 / 3) + C::slope_0));
  }
  template <class T>
  static T density_formula(const T& x) {
    using C = Constants<double>;
    const T f = distribution_formula(x), y = clamp(x, -C::limit, C::limit);
    return f * (1 - f) * (y * y * C::slope_2 + C::slope_0);
  }
  template <class T>
  static T second_derivative_formula(const T& x) {
    using C = Constants<double>;
    const T y = clamp(x, -C::limit, C::limit);  // beyond, g'' is 0 in any precision
    const T s = y * y;
    const T f = sigmoid(y * (s * (C::slope_2 / 3) + C::slope_0));
    const T slope = s * C::slope_2 + C::slope_0;
    return f * (1 - f) * (s * (4 * C::slope_2) + 2 * C::slope_0 + y * slope * slope * (1 - 2 * f));
  }

  // scale E. v(a) log2(e) = a w reaches 160 (1090 in double) before g underflows, where a rounding
  // of w to half a unit in the last place would change E by 80 units.
  template <class Real>
  static GELU_KERNELS_HD Real scaled_exponential(Real a) {
    using C = Constants<Number<Real>>;
    Pair<Real> w{C::k1_hi, C::k1_lo};
    if constexpr (C::k3_hi != 0) {
      const Real s = a * a;
      w = polynomial_step({C::k3_hi, C::k3_lo}, s, w);
      w.lo = fma(C::k3_hi, fma(a, a, -s), w.lo);
    }
    const Exponent<Real> u = exponent(-a, w.hi);
    return scale_by_power_of_two(exp2_fraction(fma(-a, w.lo, u.fraction)), u.shifted);
  }

 private:
  // 1/E of |x|, for random masks.
  template <class Real>
  static GELU_KERNELS_HD Real inverse_exponential(Real x) {
    using C = Constants<fp16>;
    const Real a = magnitude_or_limit(x, Constants<float>::tail_limit);
    const Exponent<Real> n = exponent(a, even(a, C::k1, C::k3), 0.0f);
    return scale_by_power_of_two(exp2_polynomial_4(n.fraction), n.shifted);
  }

  // At most where F and, a little farther out, as v' > 1, F' have underflowed.
  template <class Real>
  static GELU_KERNELS_HD Real until_underflow(Real a) {
    return magnitude(a, Constants<Number<Real>>::limit + 0.0625f);
  }
  template <class Real>
  static GELU_KERNELS_HD Real scaled_tail(Real a) {
    const Real e = scaled_exponential(a);
    return quotient(e, fma(e, 1 / Constants<Number<Real>>::scale, Real(1)));
  }

  // Whether 16-bit results take the lesser of F and 1/2. Near zero F is no more than 1/2 anyhow if
  // `one` is no further below the unit of E, which is exp2_0.
  static constexpr bool limits_tail = Constants<fp16>::exp2_0 - Constants<fp16>::one > 0x1p-24f;

  template <class Real>
  static GELU_KERNELS_HD Real limited(Real f) {
    if constexpr (limits_tail) {
      return at_most(f, 0.5f);
    } else {
      return f;
    }
  }

  template <class Real>
  struct Pair {
    Real hi, lo;
  };

  // An exponent u = n + fraction, |fraction| <= 1/2, for scale_by_power_of_two(q, shifted), which
  // gives scale 2^n q.
  template <class Real>
  struct Exponent {
    Real shifted, fraction;
  };

  // u = x y.
  template <class Real>
  static GELU_KERNELS_HD Exponent<Real> exponent(
      Real x, Real y, Number<Real> log2_scale = Constants<Number<Real>>::log2_scale) {
    const Number<Real> origin = Format<Real>::round_to_integer + log2_scale;
    const Real shifted = fma(x, y, origin);
    return {shifted, fma(x, y, origin - shifted)};
  }

  // c0 + c2 a^2; c2 is 0 if v is linear.
  template <class Real>
  static GELU_KERNELS_HD Real even(Real a, Number<Real> c0, Number<Real> c2) {
    if constexpr (Constants<Number<Real>>::k3_hi == 0) {
      return c0;
    } else {
      return fma(a * a, c2, c0);
    }
  }

  // p x + c to about twice the precision, if c.hi - result.hi is exact.
  template <class Real>
  static GELU_KERNELS_HD Pair<Real> polynomial_step(Pair<Real> p, Real x, Pair<Real> c) {
    const Real hi = fma(p.hi, x, c.hi);
    return {hi, fma(p.hi, x, c.hi - hi) + fma(p.lo, x, c.lo)};
  }

  // 2^f.
  template <class Real>
  static GELU_KERNELS_HD Real exp2_fraction(Real f) {
    return exp2_polynomial_6(f);
  }
  static GELU_KERNELS_HD double exp2_fraction(double f) { return exp2_polynomial(f); }

  // F from a GPU's special function unit. Near zero F is at most 1/2 in spite of the unit's error,
  // as 2^-20 makes up for four times that, and the value is at least x/2, where ties of x/2 go (see
  // Storage). The SiLU is a tie for a = 2^-8 and 2^-7 but for 2^-25 of it: F is to be 2^-19 large.
  // With a scale of 2^24, -v(a) log2(e) is rounded less, and E is normal where a F is.
  template <class Real>
  static GELU_KERNELS_HD Real approximate_tail(Real a) {
    using C = Constants<fp16>;
    constexpr float one = 0x1p24f * (limits_tail ? 1 - 0x1p-19f : 1 + 0x1p-20f);
    const Real e = approximate_exp2(fma(-a, even(a, C::k1, C::k3), Real(24)));
    return limited(e * refined_reciprocal(one + e));
  }

  // F for 16-bit results. The hardest of them lie within half a float of a tie: `one` is 2^-24
  // short of the unit of E or more, and the other constants are a few units off too, such that
  // every result is on the right side.
  template <class Real>
  static GELU_KERNELS_HD Real half_tail(Real a) {
    using C = Constants<fp16>;
    const Exponent<Real> u = exponent(-a, even(a, C::k1, C::k3));
    const Real power =
        polynomial(u.fraction, C::exp2_0, C::exp2_1, C::exp2_2, C::exp2_3, C::exp2_4, C::exp2_5);
    const Real e = scale_by_power_of_two(power, u.shifted);
    return limited(e * reciprocal(Constants<Number<Real>>::scale * C::one + e));
  }

  // D for 16-bit results: near its root with an absolute error of 2^-24, about what the rounding of
  // x + bias to a float makes there.
  template <class Real>
  static GELU_KERNELS_HD Real half_derivative_tail(Real a) {
    using C = Constants<fp16>;
    const Real f = half_tail(a);
    return fma(-a * even(a, C::slope_0, C::slope_2), fma(-f, f, f), f);
  }

  // D = E h / (1 + E)^2 with h = 1 + E - a v'(a). At the root r of h, 1 + exp(-v(r)) = r v'(r), so
  // that h = (E - exp(-v(r))) + (r v'(r) - a v'(a)), where both terms are r - a times something
  // positive: the first is exp(-v(r)) (2^u - 1) with u = (v(r) - v(a)) log2(e) = (r - a)(w0 + w1 a
  // + w2 a^2), the second (r - a)(h0 + h1 (r - a) + h2 (r - a)^2). Nothing cancels. In the code E
  // and 1 + E are times one unit and h times another, which cancel in the quotient (see
  // fit/logistic_of_cubic.py).
  template <class Real>
  static GELU_KERNELS_HD Real derivative_tail(Real a) {
    using C = Constants<Number<Real>>;
    // r - a without a rounding error: Knuth's two-sum.
    const Real difference = C::root_hi - a;
    const Real minus_a = difference - C::root_hi;
    const Real error = (C::root_hi - (difference - minus_a)) - (a + minus_a);
    const Pair<Real> distance{difference, error + C::root_lo};
    Pair<Real> w{C::w0_hi, C::w0_lo};
    Real slope = C::h0;
    if constexpr (C::k3_hi != 0) {
      w = polynomial_step(polynomial_step({C::k3_hi, C::k3_lo}, a, {C::w1_hi, C::w1_lo}), a, w);
      slope = polynomial(distance.hi, C::h0, C::h1, C::h2);
    }
    const Exponent<Real> u = exponent(distance.hi, w.hi);
    const Real p = exp2m1_polynomial(fma(distance.lo, w.hi, fma(distance.hi, w.lo, u.fraction)));
    // E = exp(-v(r)) 2^n (1 + p). 1 + p enters the product E h with a single rounding.
    const Real power = scale_by_power_of_two(Real(1), u.shifted);
    const Real e_power = scale_by_power_of_two(Real(C::root_exp), u.shifted);
    const Real h_power = scale_by_power_of_two(Real(C::root_exp_squared), u.shifted);
    const Real e = fma(e_power, p, e_power);
    const Real growth = fma(h_power, p, h_power - C::scale * C::root_exp_squared);
    const Real h = power * fma(distance.hi, slope, fma(distance.lo, slope, growth));
    return quotient(fma(h, p, h), fma(e, C::twice_one + e, C::one_squared));
  }
};

}  // namespace gelu_kernels
