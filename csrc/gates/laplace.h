// The LaLU: x F(x) with the Laplace distribution, F(x) = e^x/2 for x < 0 and 1 - e^-x/2 for x > 0.
//
// With a = |x| and F(-a) = e^-a/2: g(x) = max(x, 0) - a F(-a); g'(x) = D(a) for x < 0 and 1 - D(a)
// for x > 0, where D(a) = (1 - a) F(-a) keeps its root, 1, exactly; g'' is even.
#pragma once

#include "csrc/gates/arithmetic.h"
#include "csrc/gates/coefficients/exp2.h"
#include "csrc/gates/logistic.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels {

struct Laplace {
  static constexpr Ties ties = Ties::kAny;

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real value(Real x) {
    if constexpr (std::is_same_v<Precision, fast_bf16>) {
      const Real a = magnitude(x, half_limit);
      // Near zero F is under 1/2 in spite of the unit's error, as 2^-20 makes up for twice that,
      // and the value is above x/2, where ties of x/2 go (see Storage).
      const Real power = approximate_exp2(fma(shrunk<bf16>(x, a), -log2e, Real(15 - 0x1p-20f)));
      return fma(-(a * half_unscale), power, positive_part(x));
    } else if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, half_limit);
      const Power<Real> power = half_tail(shrunk<Precision>(x, a));
      // Near zero F is 1/2: the first fma is exact, and y has no rounding but its last.
      const Real scaled = a * half_unscale;
      const Real y = fma(-scaled, power.integral, positive_part(x));
      return fma(-scaled * power.integral, difference(power.fractional, Real(-nudge)), y);
    } else {
      const Real a = magnitude(x, limit<Real>);
      return fma(a * Logistic::scaled_exponential(a), -unscale<Real>, positive_part(x));
    }
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative(Real x) {
    if constexpr (is_half<Precision>) {
      const Real a = magnitude(x, half_limit);
      const Power<Real> power = half_tail(shrunk<Precision>(x, a));
      const Real distance = fma(-a, half_unscale, Real(half_unscale));
      const Real scaled = distance * power.integral;
      return where_positive(
          x,
          [&] {
            const Real y = fma(-distance, power.integral, Real(1));
            return fma(-scaled, difference(power.fractional, Real(-nudge)), y);
          },
          [&] { return fma(scaled, difference(power.fractional, Real(nudge)), scaled); });
    } else {
      const Real a = magnitude(x, limit<Real>);
      const Real d = (Real(1) - a) * Logistic::scaled_exponential(a);
      return where_positive(
          x, [&] { return fma(d, -unscale<Real>, Real(1)); }, [&] { return d * unscale<Real>; });
    }
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real derivative_to_encode(Real x) {
    return derivative<Precision>(x);
  }

  template <class Precision, class Real>
  static GELU_KERNELS_HD Real second_derivative(Real x) {
    const Real a = magnitude(x, limit<Real>);
    return fma(a, Real(-0.5f), Real(1)) * Logistic::scaled_exponential(a) * (2 * unscale<Real>);
  }

  // F(-a) and F'(a), which is the same, for a >= 0, in fp32 and fp64.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail(Real a) {
    const Real b = magnitude(a, limit<Real>);
    // E of NaN is any number: see LogisticOfCubic.
    return fma(b, Real(0), Logistic::scaled_exponential(b) * unscale<Real>);
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real density(Real a) {
    return tail<Precision>(a);
  }
  static constexpr double left_limit = -0.0;  // the value at -infinity

  // The same for 16-bit results, from s = share a: see cdf.h.
  static constexpr float share = 0x1p-7f;
  template <class Precision>
  static constexpr float tail_share = share;
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real tail_at(Real s) {
    constexpr float origin = Format<float>::round_to_integer + 64 - 1;
    const Real shifted = fma(s, -log2e / share, Real(origin));
    const Real power = exp2_polynomial_5(fma(s, -log2e / share, origin - shifted));
    return scale_by_power_of_two(power, shifted) * 0x1p-64f;
  }
  template <class Precision, class Real>
  static GELU_KERNELS_HD Distribution<Real> distribution_at(Real s) {
    const Real f = tail_at<Precision>(s);
    return {f, f};
  }

  // Whether u < 2^32 F(-|x|) - 1, for an integer u >= 0; never for NaN. The probability has an
  // absolute error of less than 2e-6.
  template <class Real>
  static GELU_KERNELS_HD auto in_tail(Real x, Real u) {
    return u < tail_threshold(x);
  }
  template <class Real>
  static GELU_KERNELS_HD Real tail_threshold(Real x) {
    const Real a = magnitude_or_limit(x, 21.5f);  // beyond it 2^32 F(-a) is less than 1
    constexpr float origin = Format<float>::round_to_integer + 31;
    const Real shifted = fma(a, -log2e, Real(origin));
    const Real f = fma(a, -log2e, origin - shifted);
    return scale_by_power_of_two(exp2_polynomial_4(f), shifted) - Real(1);
  }

  // F(x) by the special function unit, and its error, with the threshold's own of `in_tail`.
  static constexpr float estimate_error = 0x1p-18f;
  template <class Real>
  static GELU_KERNELS_HD Real distribution_estimate(Real x) {
    const Real tail = approximate_exp2(fma(absolute(x), Real(-log2e), Real(-1)));
    return where_positive(x, [&] { return Real(1) - tail; }, [&] { return tail; });
  }

  // F, F' and g'' as formulas over any type that has exp, abs, relu and clamp of its own: over
  // at::Tensor, they can be differentiated further.
  template <class T>
  static T distribution_formula(const T& x) {
    const T y = clamp(x, -760, 760);  // beyond, F is 0 or 1 in any precision
    const T right = relu(y);          // its gradient at 0 is 0, so that only one exp has one there
    return (exp(y - right) + (1 - exp(-right))) * 0.5;
  }
  template <class T>
  static T density_formula(const T& x) {
    return exp(-abs(clamp(x, -760, 760))) * 0.5;
  }
  template <class T>
  static T second_derivative_formula(const T& x) {
    const T a = abs(clamp(x, -760, 760));
    return exp(-a) * (1 - a * 0.5);
  }

 private:
  // e^-a is the E of the logistic gate, in fp32 and fp64, and so is its scale.
  template <class Real>
  static constexpr Number<Real> limit = LogisticConstants<Number<Real>>::limit;
  template <class Real>
  static constexpr Number<Real> unscale = 0.5f / LogisticConstants<Number<Real>>::scale;

  // For 16-bit results. F is kept times 2^16: it is a normal number where they do not underflow. At
  // the limit its power of two is 0, and so is the result times any number.
  static constexpr float half_limit = 98.25f, half_unscale = 0x1p-16f, log2e = 0x1.715476p0f;

  // The hardest values and derivatives in fp16 lie so close to a tie that F is to be larger, and
  // for a derivative at x < 0 smaller, by 0.31 to 0.36 times 2^-24 of it: measured, and what lies
  // between them is right for all.
  static constexpr float nudge = 0x1.5p-26f;

  // a, but for x > 0 in bf16 a little less: at x = 5.09375 the value is so close below a tie that
  // a F is to be 1.5e-5 larger, or y would be rounded to the tie. No other x > 0 minds.
  template <class Precision, class Real>
  static GELU_KERNELS_HD Real shrunk(Real x, Real a) {
    if constexpr (std::is_same_v<Precision, bf16>) {
      return where_positive(x, [&] { return a * Real(1 - 0x1p-18f); }, [&] { return a; });
    } else {
      return a;
    }
  }

  template <class Real>
  struct Power {
    Real integral;    // 2^n
    Real fractional;  // 2^f - 1
  };

  // F(-a) / half_unscale.
  template <class Real>
  static GELU_KERNELS_HD Power<Real> half_tail(Real a) {
    // It holds the exponent bias, so that a shift alone makes a power of two.
    constexpr float origin = Format<float>::round_to_integer + 127 + 16 - 1;
    const Real shifted = fma(a, -log2e, Real(origin));
    return {power_of_two(shifted), exp2m1_polynomial_5(fma(a, -log2e, origin - shifted))};
  }
};

}  // namespace gelu_kernels
