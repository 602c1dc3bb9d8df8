// Written by `python -m fit.normal`; do not edit.
// clang-format off
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

template <class Type>
struct NormalConstants;

template <>
struct NormalConstants<fp32> {
  static constexpr float limit = 0x1.d8p3f;
  static constexpr float value_pole = 0x1.4p1f;
  static constexpr float derivative_pole = 0x1p2f;
  static constexpr float root_hi = 0x1.80ead2p-1f;
  static constexpr float root_lo = -0x1.a03fd4p-27f;
  static constexpr float half_log2e = 0x1.715476p-1f;
  static constexpr float density = 0x1.988454p-2f;
  static constexpr float unscale = 0x1p-32f;
  static constexpr float origin = 0x1.80013ep23f;
  static constexpr float tail_limit = 0x1.9p2f;
  static constexpr float share = 0x1p-4f;
  static constexpr float ratio_pole = 0x1p-2f;
};

template <>
struct NormalConstants<fp64> {
  static constexpr double limit = 0x1.368p5;
  static constexpr double value_pole = 0x1.4p1;
  static constexpr double derivative_pole = 0x1p2;
  static constexpr double root_hi = 0x1.80ead197f00b4p-1;
  static constexpr double root_lo = -0x1.13e74c58cada8p-56;
  static constexpr double half_log2e = 0x1.71547652b82fep-1;
  static constexpr double density = 0x1.9884533d43651p-2;
  static constexpr double unscale = 0x1p-96;
  static constexpr double origin = 0x1.800000000045fp52;
};

template <>
struct NormalConstants<bf16> {
  static constexpr float value_limit = 0x1.b8p3f;
  static constexpr float derivative_limit = 0x1.c2p3f;
  static constexpr float unscale = 0x1p-16f;
  static constexpr float log2_scale = 0x1p4f;
  static constexpr float one = 0x1p0f;
  static constexpr float slope = 0x1.54851ap-1f;
};

template <>
struct NormalConstants<fp16> {
  static constexpr float value_limit = 0x1.6p3f;
  static constexpr float derivative_limit = 0x1.5p3f;
  static constexpr float unscale = 0x1p0f;
  static constexpr float log2_scale = 0x0p0f;
  static constexpr float one = 0x1.000002p0f;
  static constexpr float slope = 0x1.54851ap-1f;
};

// Phi(-a) 2^(k a^2) a/z for z = 2.5 a / (a + 2.5) and a <= 14.75; relative error 2^-25.7.
template <class Real>
GELU_KERNELS_HD Real normal_value_factor(Real z) {
  return polynomial(z, 0x1p-1f, -0x1.976f5p-3f, 0x1.63b474p-7f, 0x1.e987fcp-8f, 0x1.2fcff8p-11f,
                    -0x1.45fb7cp-11f, 0x1.e98364p-13f, -0x1.b68208p-13f, 0x1.37e472p-14f,
                    -0x1.1cc67p-17f);
}

// D(a) 2^(k a^2) / (root - a) for v = a / (a + 4.0) and a <= 14.75; relative error 2^-24.5.
template <class Real>
GELU_KERNELS_HD Real normal_derivative_factor(Real v) {
  return polynomial(v, 0x1.54851ap-1f, -0x1.69c8cap-1f, 0x1.b5622ap-1f, -0x1.32636p-1f,
                    0x1.4df8b6p-3f, 0x1.554e36p-4f, -0x1.4f34dap-4f, 0x1.4889b2p-6f);
}

// phi(a) 2^(k s) for s = a^2: 1/sqrt(2 pi), and what rounding k leaves.
template <class Real>
GELU_KERNELS_HD Real normal_density_factor(Real s) {
  return polynomial(s, 0x1.988454p-2f, -0x1.6dfc2ap-29f);
}

// Phi(-a) 2^(k a^2) a/z for z = 2.5 a / (a + 2.5) and a <= 38.8125; relative error 2^-54.5.
GELU_KERNELS_HD double normal_value_factor(double z) {
  return polynomial(z - 0x1.4p0, 0x1.21725231700b8p-2, -0x1.1c3977a85bbep-3, 0x1.14cc216dd2fdap-5,
                    0x1.f0063fbfdb438p-10, -0x1.5ff91e13d3586p-9, -0x1.beade9e0d8a3cp-13,
                    0x1.1712cff1bc698p-12, 0x1.0b1ed095797efp-14, -0x1.6d0b21ffbb67fp-16,
                    -0x1.d8f4c48597dfdp-17, -0x1.a47fe3f87558cp-21, 0x1.042f12a95ae68p-19,
                    0x1.b2d3d2086aba5p-21, -0x1.42aaf3fd4eee8p-26, -0x1.413cc7f0320b7p-23,
                    -0x1.099ff6f65138fp-24, -0x1.0e842523897c5p-30, 0x1.90f1be07855dcp-27,
                    0x1.ca244a6aea86cp-28, 0x1.ecb90084019c3p-31, -0x1.6defa91b0e3e8p-30,
                    -0x1.bb59247bb78a6p-31, 0x1.f063383108abbp-36, 0x1.494a8417c9c67p-33,
                    0x1.b1dd96990f30ap-36, -0x1.619064ceab237p-37, -0x1.62006dc88a9edp-39);
}

// D(a) 2^(k a^2) / (root - a) for v = a / (a + 4.0) and a <= 38.8125; relative error 2^-56.5.
GELU_KERNELS_HD double normal_derivative_factor(double v) {
  return polynomial(v - 0x1p-1, 0x1.d94de78425462p-2, -0x1.a763001ac67e6p-3, 0x1.ef4ff80137909p-3,
                    -0x1.cc1e2623d9bc3p-3, 0x1.37754d816ff37p-3, -0x1.d4c8222994caep-5,
                    -0x1.443f63f57e756p-7, 0x1.85999bb84efdfp-6, -0x1.25380cb710ec4p-8,
                    -0x1.2e936440a2018p-7, 0x1.dafb1ccd382a3p-9, 0x1.298353b43782cp-8,
                    -0x1.083465a456d33p-9, -0x1.76d1052bfa865p-9, 0x1.c1822e1a47ae5p-11,
                    0x1.0d3240348adf1p-9, -0x1.9ccaa9d06bab9p-15, -0x1.6d51bbdef901bp-10,
                    -0x1.bcd2a45fd02cap-12, 0x1.45d86db333295p-11, 0x1.9be1b56b5a418p-12);
}

// phi(a) 2^(k s) for s = a^2: 1/sqrt(2 pi), and what rounding k leaves.
GELU_KERNELS_HD double normal_density_factor(double s) {
  return polynomial(s, 0x1.9884533d43651p-2, -0x1.9f54350ccc4c3p-59);
}

// 2^f for |f| <= 1/2, of a value.
template <class Real>
GELU_KERNELS_HD Real normal_value_exp2(bf16, Real f) {
  return polynomial(f, 0x1p0f, 0x1.62e12cp-1f, 0x1.ec036ep-3f, 0x1.c9fc6cp-5f, 0x1.3a0538p-7f);
}

// (1 + log2 Phi(-a)) / a. Every bf16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_cdf(bf16, Real a) {
  return polynomial(a, -0x1.26b0ccp0f, -0x1.d5eb5ap-2f, -0x1.b6d92ep-5f, 0x1.1382aep-7f,
                    -0x1.edd992p-11f, 0x1.28f36cp-14f, -0x1.bc71ep-19f, 0x1.6bf6c4p-24f,
                    -0x1.dd2492p-31f);
}

// log2(D(a) / (1/2 - slope a)) / a. Every bf16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_derivative(bf16, Real a) {
  return polynomial(a, -0x1.883862p-2f, -0x1.1f9de2p-1f, -0x1.b1aa8ap-5f, 0x1.b6c358p-7f,
                    -0x1.4245ccp-9f, 0x1.49da36p-12f, -0x1.c43beep-16f, 0x1.88dcb2p-20f,
                    -0x1.8516ecp-25f, 0x1.4d9dd6p-31f);
}

// 1.52587890625e-05 D(a) / Phi(-a) for a <= 6; absolute error of D(a) 2^-18.6 if Phi(-a) is exact.
template <class Real>
GELU_KERNELS_HD Real normal_derivative_ratio(bf16, Real a) {
  return polynomial(a, 0x1p-16f, -0x1.98768cp-17f, -0x1.463f6ep-17f, -0x1.bc0e5ep-20f,
                    0x1.47368p-22f, -0x1.bcdadp-26f);
}

// 2^f for |f| <= 1/2, of a value.
template <class Real>
GELU_KERNELS_HD Real normal_value_exp2(fp16, Real f) {
  return polynomial(f, 0x1.000002p0f, 0x1.62e42ap-1f, 0x1.ebf9c2p-3f, 0x1.c6b6d8p-5f,
                    0x1.3ce8acp-7f, 0x1.5bda4p-10f);
}

// (1 + log2 Phi(-a)) / a. Every fp16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_cdf(fp16, Real a) {
  return polynomial(a, -0x1.26af3cp0f, -0x1.d6288ep-2f, -0x1.b0452ap-5f, 0x1.ebc8ep-8f,
                    -0x1.f908bep-12f, -0x1.91417cp-15f, 0x1.8eba16p-17f, -0x1.7309aap-21f);
}

// log2(D(a) / (1/2 - slope a)) / a. Every fp16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_derivative(fp16, Real a) {
  return polynomial(a, -0x1.88644ap-2f, -0x1.1f0deap-1f, -0x1.c1e63ep-5f, 0x1.e9b318p-7f,
                    -0x1.921b6ap-9f, 0x1.c9cc3ap-12f, -0x1.3bc55ap-15f, 0x1.87ef06p-20f);
}

// D(a) / Phi(-a) for a <= 6; absolute error of D(a) 2^-21.0 if Phi(-a) is exact.
template <class Real>
GELU_KERNELS_HD Real normal_derivative_ratio(fp16, Real a) {
  return polynomial(a, 0x1p0f, -0x1.988954p-1f, -0x1.45b89ep-1f, -0x1.c56a32p-4f, 0x1.69cbe4p-6f,
                    -0x1.4d3584p-9f, 0x1.f972fp-14f);
}

// (2^32 Phi(-a))^(1/16) for a <= 6.25; relative error of Phi(-a) 2^-19.8 e^(a^2/8).
template <class Real>
GELU_KERNELS_HD Real normal_tail_root(Real a) {
  return polynomial(a, 0x1.ea4afcp1f, -0x1.87373ep-3f, -0x1.2463cap-4f, -0x1.4f0c78p-8f,
                    0x1.3b11cap-9f, -0x1.0669d6p-15f, -0x1.0e35dcp-15f, 0x1.a4c32ep-19f,
                    -0x1.9f7c22p-24f);
}

// log2(Phi(-x)/Phi(x)) / x for s = x^2 and |x| <= 4; error of Phi(x) 2^-15.7.
template <class Real>
GELU_KERNELS_HD Real normal_logit(Real s) {
  return polynomial(s, -0x1.269efap1f, -0x1.b2e844p-4f, 0x1.ddf43p-11f);
}

// (1 + log2 Phi(-a)) / s for s = 0.0625 a; relative error of Phi(-a) 2^-14.8 for a <= 13.5.
template <class Real>
GELU_KERNELS_HD Real normal_tail_log2(bf16, Real s) {
  return polynomial(s, -0x1.26a1dep4f, -0x1.d622a6p6f, -0x1.b766cp7f, 0x1.175eacp9f,
                    -0x1.02c6c2p10f, 0x1.4b5a5p10f, -0x1.12eea4p10f, 0x1.084e94p9f, -0x1.bd3e3ep6f);
}

// (1 + log2 Phi(-a)) / s for s = 0.125 a; relative error of Phi(-a) 2^-17.7 for a <= 6.0.
template <class Real>
GELU_KERNELS_HD Real normal_tail_log2(fp16, Real s) {
  return polynomial(s, -0x1.26b6eep3f, -0x1.d579d8p4f, -0x1.ba5d16p4f, 0x1.185d78p5f,
                    -0x1.f3f44cp4f, 0x1.193b9p4f, -0x1.4b46dcp2f, 0x1.efceccp-2f);
}

// Phi(-a) / phi(a) for t = 1 / (s + 0.25) and s = 0.0625 a <= 1; relative error 2^-20.9 for a <= 1,
// and 2.5 times that for a >= 3.
template <class Real>
GELU_KERNELS_HD Real normal_ratio(Real t) {
  return polynomial(t, 0x1.2ac7ccp-12f, 0x1.f49bfp-5f, 0x1.2e77cep-6f, 0x1.0ca948p-11f,
                    0x1.77acacp-9f, -0x1.5af3e2p-11f, 0x1.b37638p-13f, -0x1.cf3d66p-17f);
}

// phi(0) 2^f for |f| <= 1/2; relative error 2^-23.2.
template <class Real>
GELU_KERNELS_HD Real normal_density_exp2(Real f) {
  return polynomial(f, 0x1.988456p-2f, 0x1.1b299p-2f, 0x1.88890ep-4f, 0x1.6ac568p-6f,
                    0x1.fa4bbap-9f, 0x1.1a8ce2p-11f);
}

}  // namespace gelu_kernels
