// Two floats in place of one: a formula of a gate over pairs computes two elements at a time, each
// with the operations and the bits that a float has. Some GPUs have instructions for a pair; what
// else arithmetic.h asks of a float is here done half by half.
//
// No product of pairs may be added to anything: ptxas 13.0 fuses mul.rn.f32x2 and add.rn.f32x2 into
// one operation with one rounding, in spite of -fmad=false and of .rn. `difference` is for that.
#pragma once

#include "csrc/gates/arithmetic.h"

// GPUs of compute capability 10.x. For later ones ptxas takes a pair's instruction apart.
#ifdef __CUDA_ARCH__
#define GELU_KERNELS_HAS_PAIRS (__CUDA_ARCH__ / 100 == 10)
#else
#define GELU_KERNELS_HAS_PAIRS 0
#endif

namespace gelu_kernels {

struct float_pair {
  float low, high;

  float_pair() = default;
  GELU_KERNELS_HD float_pair(float both) : low(both), high(both) {}
  GELU_KERNELS_HD float_pair(float low, float high) : low(low), high(high) {}
#if GELU_KERNELS_HAS_PAIRS
  GELU_KERNELS_HD float_pair(float2 x) : low(x.x), high(x.y) {}
  GELU_KERNELS_HD operator float2() const { return {low, high}; }
#endif
};

template <>
struct Format<float_pair> : Format<float> {};

GELU_KERNELS_HD float_pair operator-(float_pair x) { return {-x.low, -x.high}; }

GELU_KERNELS_HD float_pair operator+(float_pair x, float_pair y) {
#if GELU_KERNELS_HAS_PAIRS
  return __fadd2_rn(x, y);
#else
  return {x.low + y.low, x.high + y.high};
#endif
}
GELU_KERNELS_HD float_pair operator-(float_pair x, float_pair y) { return x + -y; }

GELU_KERNELS_HD float_pair operator*(float_pair x, float_pair y) {
#if GELU_KERNELS_HAS_PAIRS
  return __fmul2_rn(x, y);
#else
  return {x.low * y.low, x.high * y.high};
#endif
}

GELU_KERNELS_HD float_pair fma(float_pair a, float_pair b, float_pair c) {
#if GELU_KERNELS_HAS_PAIRS
  return __ffma2_rn(a, b, c);
#else
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
#endif
}

struct bool_pair {
  bool low, high;
};

GELU_KERNELS_HD bool_pair operator<(float_pair x, float_pair y) {
  return {x.low < y.low, x.high < y.high};
}
GELU_KERNELS_HD bool_pair operator==(float_pair x, float_pair y) {
  return {x.low == y.low, x.high == y.high};
}
GELU_KERNELS_HD bool_pair operator!=(bool_pair x, bool_pair y) {
  return {x.low != y.low, x.high != y.high};
}
GELU_KERNELS_HD bool_pair is_positive_or_nan(float_pair x) {
  return {is_positive_or_nan(x.low), is_positive_or_nan(x.high)};
}

GELU_KERNELS_HD float_pair difference(float_pair x, float_pair y) {
  return {x.low - y.low, x.high - y.high};
}
template <typename Y, typename Otherwise>
GELU_KERNELS_HD float_pair where_positive(float_pair x, Y y, Otherwise otherwise) {
  const float_pair a = y(), b = otherwise();
  return {x.low > 0 ? a.low : b.low, x.high > 0 ? a.high : b.high};
}
GELU_KERNELS_HD float_pair where(bool_pair condition, float_pair y, float_pair otherwise) {
  return {condition.low ? y.low : otherwise.low, condition.high ? y.high : otherwise.high};
}
GELU_KERNELS_HD float_pair at_most(float_pair x, float limit) {
  return {at_most(x.low, limit), at_most(x.high, limit)};
}
GELU_KERNELS_HD float_pair clipped(float_pair x, float limit) {
  return {clipped(x.low, limit), clipped(x.high, limit)};
}
GELU_KERNELS_HD float_pair saturated_product(float_pair x, float_pair y) {
  return {saturated_product(x.low, y.low), saturated_product(x.high, y.high)};
}
GELU_KERNELS_HD float_pair unless_above(float_pair x, float limit, float_pair y) {
  return {unless_above(x.low, limit, y.low), unless_above(x.high, limit, y.high)};
}
GELU_KERNELS_HD float_pair flushed(float_pair y, float bound) {
  return {flushed(y.low, bound), flushed(y.high, bound)};
}
GELU_KERNELS_HD float_pair absolute(float_pair x) { return {absolute(x.low), absolute(x.high)}; }
GELU_KERNELS_HD float_pair magnitude(float_pair x, float limit) {
  return {magnitude(x.low, limit), magnitude(x.high, limit)};
}
GELU_KERNELS_HD float_pair magnitude_or_limit(float_pair x, float limit) {
  return {magnitude_or_limit(x.low, limit), magnitude_or_limit(x.high, limit)};
}
GELU_KERNELS_HD float_pair positive_part(float_pair x) {
  return {positive_part(x.low), positive_part(x.high)};
}
GELU_KERNELS_HD float_pair power_of_two(float_pair shifted) {
  return {power_of_two(shifted.low), power_of_two(shifted.high)};
}
GELU_KERNELS_HD float_pair scale_by_power_of_two(float_pair q, float_pair shifted) {
  return {scale_by_power_of_two(q.low, shifted.low), scale_by_power_of_two(q.high, shifted.high)};
}
GELU_KERNELS_HD float_pair odd_neighbour(float_pair x) {
  return {odd_neighbour(x.low), odd_neighbour(x.high)};
}

#ifdef __CUDA_ARCH__
GELU_KERNELS_HD float_pair approximate_exp2(float_pair x) {
  return {approximate_exp2(x.low), approximate_exp2(x.high)};
}
GELU_KERNELS_HD float_pair approximate_reciprocal(float_pair x) {
  return {approximate_reciprocal(x.low), approximate_reciprocal(x.high)};
}
#endif

}  // namespace gelu_kernels
