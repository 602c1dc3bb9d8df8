// The few operations that every gate is written in: fused multiply-add, selects, bit casts,
// Horner's rule and a power of two by integer addition. No libm: g++ vectorises these in a plain
// loop and nvcc compiles them as they stand, and the same IEEE operations in the same order give
// the same bits on every machine. Build without -ffast-math and with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#define GELU_KERNELS_HD __host__ __device__ __forceinline__
#else
// Always inline: an out-of-line copy compiled for one instruction set must never be linked into the
// loop of another.
#define GELU_KERNELS_HD inline __attribute__((always_inline))
#endif

namespace gelu_kernels {

// Precision classes: the storage format that a gate's result is rounded to, and the type in which
// the gate is evaluated.
struct bf16 {
  using Real = float;
};
struct fp16 {
  using Real = float;
};
struct fp32 {
  using Real = float;
};
struct fp64 {
  using Real = double;
};

// bf16 for the value of a gate by a GPU's special function unit: its errors are too small to change
// how the value of any bfloat16 rounds, though not that of any float.
struct fast_bf16 {
  using Real = float;
};

template <class Precision>
constexpr bool is_half = !std::is_same_v<Precision, fp32> && !std::is_same_v<Precision, fp64>;

// Adding `round_to_integer` to |u| < 2^21 (2^50 for double) leaves round(u) in the low bits of the
// sum.
template <typename Real>
struct Format;
template <>
struct Format<float> {
  using Number = float;
  static constexpr float round_to_integer = 0x1.8p23f;
  static constexpr int mantissa_bits = 23, exponent_bias = 127;
  static constexpr float largest = 0x1.fffffep127f, smallest_normal = 0x1p-126f;
};
template <>
struct Format<double> {
  using Number = double;
  static constexpr double round_to_integer = 0x1.8p52;
  static constexpr int mantissa_bits = 52, exponent_bias = 1023;
  static constexpr double largest = 0x1.fffffffffffffp1023, smallest_normal = 0x1p-1022;
};

// The type of a formula's constants: Real, or float if that is a pair of them (see float_pair.h).
template <typename Real>
using Number = typename Format<Real>::Number;

// F(-a) and F'(a) of a distribution function F.
template <class Real>
struct Distribution {
  Real tail, density;
};

GELU_KERNELS_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif defined(__FP_FAST_FMAF) || !defined(__SSE2__)
  return __builtin_fmaf(a, b, c);
#else
  // x86-64 without FMA: the product is exact in double, and the sum rounds twice (to 53 bits, then
  // 24), which differs from one rounding in about one case in 2^29. fmaf() itself would be a slow
  // call.
  return static_cast<float>(static_cast<double>(a) * b + c);
#endif
}

GELU_KERNELS_HD double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

GELU_KERNELS_HD uint32_t bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
GELU_KERNELS_HD uint64_t bits(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
GELU_KERNELS_HD float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
GELU_KERNELS_HD double from_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// x, or `limit` if that is less; NaN stays NaN.
GELU_KERNELS_HD float at_most(float x, float limit) {
#ifdef __CUDA_ARCH__
  float least;  // in one instruction, not two
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x), "f"(limit));
  return least;
#else
  return x > limit ? limit : x;
#endif
}
GELU_KERNELS_HD double at_most(double x, double limit) { return x > limit ? limit : x; }

// x, or the nearest number from -limit to `limit`; NaN stays NaN.
template <typename Real, typename Number>
GELU_KERNELS_HD Real clamped(Real x, Number limit) {
  return -at_most(-at_most(x, limit), limit);
}

// x y, at least 0 and at most 1; NaN becomes 0.
GELU_KERNELS_HD float saturated_product(float x, float y) {
#ifdef __CUDA_ARCH__
  float product;  // in one instruction
  asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
  return product;
#else
  const float product = x * y, least = product > 0 ? product : 0;
  return least < 1 ? least : 1;
#endif
}

// x, at least 0 and at most `limit`; NaN becomes 0.
GELU_KERNELS_HD float clipped(float x, float limit) {
#ifdef __CUDA_ARCH__
  return fminf(fmaxf(x, 0.0f), limit);
#else
  const float least = x > 0 ? x : 0;
  return least < limit ? least : limit;
#endif
}

// y where x is not above `limit`, else 0: the gradient of at_most(x, limit). NaN is not above.
GELU_KERNELS_HD float unless_above(float x, float limit, float y) { return x > limit ? 0.0f : y; }
GELU_KERNELS_HD double unless_above(double x, double limit, double y) { return x > limit ? 0 : y; }

// y, or -0 for a y from -bound to -0.
GELU_KERNELS_HD float flushed(float y, float bound) {
  // As signed integers these are the least of all: one comparison.
  return static_cast<int32_t>(bits(y)) <= static_cast<int32_t>(bits(-bound)) ? -0.0f : y;
}

GELU_KERNELS_HD float absolute(float x) { return __builtin_fabsf(x); }
GELU_KERNELS_HD double absolute(double x) { return __builtin_fabs(x); }

// |x|, at most `limit`; NaN stays NaN.
GELU_KERNELS_HD float magnitude(float x, float limit) { return at_most(absolute(x), limit); }
GELU_KERNELS_HD double magnitude(double x, double limit) { return at_most(absolute(x), limit); }

// The same, but NaN becomes `limit`.
GELU_KERNELS_HD float magnitude_or_limit(float x, float limit) {
#ifdef __CUDA_ARCH__
  return fminf(absolute(x), limit);
#else
  // As integers: NaN is the most of all, and a minimum is one instruction.
  const uint32_t magnitude = bits(x) & 0x7fffffff;
  return from_bits(magnitude < bits(limit) ? magnitude : bits(limit));
#endif
}

// x, or -0 for a negative x: all of a gate's value far from zero. The result for NaN does not
// matter, because the rest of the gate is NaN.
template <typename Real>
GELU_KERNELS_HD Real positive_part(Real x) {
#ifdef __CUDA_ARCH__
  return max(x, Real(-0.0));  // one instruction
#else
  return x < 0 ? Real(-0.0) : x;
#endif
}

// y() where x > 0, else otherwise(). Both are functions because one x needs only one of them.
template <typename Real, typename Y, typename Otherwise>
GELU_KERNELS_HD Real where_positive(Real x, Y y, Otherwise otherwise) {
  return x > 0 ? y() : otherwise();
}

// y where the condition holds, else otherwise.
template <typename Real>
GELU_KERNELS_HD Real where(bool condition, Real y, Real otherwise) {
  return condition ? y : otherwise;
}

GELU_KERNELS_HD bool is_positive_or_nan(float x) { return !(x <= 0); }

// x - y. Where x or y may be a product, formulas say `difference`: pairs must not fuse the two
// operations (see float_pair.h).
template <typename Real>
GELU_KERNELS_HD Real difference(Real x, Real y) {
  return x - y;
}

// 2^x and 1/x by one instruction of a GPU's special function unit, with errors of 2^-22 and 2^-23
// and no subnormal numbers in or out. No formula asks that 2^x be exact for an integer.
#ifdef __CUDA_ARCH__
GELU_KERNELS_HD float approximate_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GELU_KERNELS_HD float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + 2^x).
template <typename Real>
GELU_KERNELS_HD Real approximate_logistic(Real x) {
  return approximate_reciprocal(Real(1) + approximate_exp2(x));
}

// 1/x to about half a unit in the last place, by a step of Newton's.
template <typename Real>
GELU_KERNELS_HD Real refined_reciprocal(Real x) {
  const Real estimate = approximate_reciprocal(x);
  return fma(estimate, fma(-x, estimate, 1.0f), estimate);
}
#endif

// n/d, correctly rounded. n, d and n/d are far from overflow and underflow. So a GPU takes the
// steps of its own division without the test for such operands.
template <typename Real>
GELU_KERNELS_HD Real quotient(Real n, Real d) {
#ifdef __CUDA_ARCH__
  const Real reciprocal = refined_reciprocal(d);
  Real q = n * reciprocal;
  q = fma(reciprocal, fma(-d, q, n), q);
  return fma(reciprocal, fma(-d, q, n), q);
#else
  return n / d;
#endif
}
GELU_KERNELS_HD double quotient(double n, double d) { return n / d; }

// 1/x, correctly rounded, for x and 1/x far from overflow and underflow; for other x, anything. The
// first step of Newton's may miss 40 of the 2^23 significands, the second one 0x1.fffffe at most.
// There the unit is right, for a GPU's own division takes the same steps.
template <typename Real>
GELU_KERNELS_HD Real reciprocal(Real x) {
#ifdef __CUDA_ARCH__
  const Real estimate = refined_reciprocal(x);
  return fma(estimate, fma(-x, estimate, 1.0f), estimate);
#else
  return 1 / x;
#endif
}
GELU_KERNELS_HD double reciprocal(double x) { return 1 / x; }

// c0 + c1 x + c2 x^2 + ... by Horner's rule, unrolled.
template <typename Real>
GELU_KERNELS_HD Real polynomial(Real, Number<Real> c0) {
  return c0;
}
template <typename Real, typename... Rest>
GELU_KERNELS_HD Real polynomial(Real x, Number<Real> c0, Rest... rest) {
  return fma(polynomial(x, rest...), x, c0);
}

// 2^n, where shifted is round_to_integer plus an integer, n + exponent_bias.
template <typename Real>
GELU_KERNELS_HD Real power_of_two(Real shifted) {
  return from_bits(bits(shifted) << Format<Real>::mantissa_bits);
}

// q·2^n, where shifted is round_to_integer plus the integer n. This adds n to q's exponent, so q
// and the result must be normal numbers.
template <typename Real>
GELU_KERNELS_HD Real scale_by_power_of_two(Real q, Real shifted) {
  return from_bits(bits(q) + (bits(shifted) << Format<Real>::mantissa_bits));
}

// x if it is odd, as an integer of its bits, else the next number up, which is.
GELU_KERNELS_HD float odd_neighbour(float x) {
  const uint32_t u = bits(x);
  return from_bits((u - (u >> 31)) | 1);
}

}  // namespace gelu_kernels
