// The few operations that every gate is written in: fused multiply-add, selects, bit casts,
// Horner's rule and a power of two by integer addition. No libm: g++ vectorises these in a plain
// loop and nvcc compiles them as they stand, and the same IEEE operations in the same order give
// the same bits on every machine. Build without -ffast-math and with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

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

// |x|, at most `limit`; NaN stays NaN.
GELU_KERNELS_HD float magnitude(float x, float limit) {
  const float a = __builtin_fabsf(x);
  return a > limit ? limit : a;
}
GELU_KERNELS_HD double magnitude(double x, double limit) {
  const double a = __builtin_fabs(x);
  return a > limit ? limit : a;
}

// The part of a gate that is left far from zero: x, or -0 for a negative one. NaN stays NaN.
template <typename Real>
GELU_KERNELS_HD Real positive_part(Real x) {
  return x < 0 ? Real(-0.0) : x;
}

// c0 + c1 x + c2 x^2 + ... by Horner's rule, unrolled.
template <typename Real>
GELU_KERNELS_HD Real horner(Real, Real c0) {
  return c0;
}
template <typename Real, typename... Rest>
GELU_KERNELS_HD Real horner(Real x, Real c0, Rest... rest) {
  return fma(horner(x, rest...), x, c0);
}

// Adding `round_to_integer` to |u| < 2^21 (2^50 for double) leaves round(u) in the low bits of the
// sum.
template <typename Real>
struct Format;
template <>
struct Format<float> {
  static constexpr float round_to_integer = 0x1.8p23f;
  static constexpr int mantissa_bits = 23;
};
template <>
struct Format<double> {
  static constexpr double round_to_integer = 0x1.8p52;
  static constexpr int mantissa_bits = 52;
};

// q·2^n for n = shifted - round_to_integer, where shifted is such a sum: n is added to q's
// exponent, so q and the result must be normal numbers.
template <typename Real>
GELU_KERNELS_HD Real scale_by_power_of_two(Real q, Real shifted) {
  return from_bits(bits(q) + (bits(shifted) << Format<Real>::mantissa_bits));
}

}  // namespace gelu_kernels
