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
  static constexpr float unscale = 0x1p-32f;
  static constexpr float origin = 0x1.80013ep23f;
  static constexpr float tail_limit = 0x1.9p2f;
};

template <>
struct NormalConstants<fp64> {
  static constexpr double limit = 0x1.368p5;
  static constexpr double value_pole = 0x1.4p1;
  static constexpr double derivative_pole = 0x1p2;
  static constexpr double root_hi = 0x1.80ead197f00b4p-1;
  static constexpr double root_lo = -0x1.13e74c58cada8p-56;
  static constexpr double half_log2e = 0x1.71547652b82fep-1;
  static constexpr double unscale = 0x1p-96;
  static constexpr double origin = 0x1.800000000045fp52;
};

template <>
struct NormalConstants<bf16> {
  static constexpr float value_limit = 0x1.b4p3f;
  static constexpr float derivative_limit = 0x1.bap3f;
  static constexpr float unscale = 0x1p-16f;
  static constexpr float origin = 0x1.80011ep23f;
  static constexpr float slope = 0x1.54851ap-1f;
};

template <>
struct NormalConstants<fp16> {
  static constexpr float value_limit = 0x1.7p2f;
  static constexpr float derivative_limit = 0x1.84p2f;
  static constexpr float unscale = 0x1p0f;
  static constexpr float origin = 0x1.8000fep23f;
  static constexpr float slope = 0x1.54851ap-1f;
};

// Phi(-a) 2^(k a^2) a/z for z = 2.5 a / (a + 2.5) and a <= 14.75; relative error 2^-25.7.
template <class Real>
GELU_KERNELS_HD Real normal_value_factor(Real z) {
  return horner(z, 0x1p-1f, -0x1.976f5p-3f, 0x1.63b474p-7f, 0x1.e987fcp-8f, 0x1.2fcff8p-11f,
                -0x1.45fb7cp-11f, 0x1.e98364p-13f, -0x1.b68208p-13f, 0x1.37e472p-14f,
                -0x1.1cc67p-17f);
}

// D(a) 2^(k a^2) / (root - a) for v = a / (a + 4.0) and a <= 14.75; relative error 2^-24.5.
template <class Real>
GELU_KERNELS_HD Real normal_derivative_factor(Real v) {
  return horner(v, 0x1.54851ap-1f, -0x1.69c8cap-1f, 0x1.b5622ap-1f, -0x1.32636p-1f, 0x1.4df8b6p-3f,
                0x1.554e36p-4f, -0x1.4f34dap-4f, 0x1.4889b2p-6f);
}

// phi(a) 2^(k s) for s = a^2: 1/sqrt(2 pi), and what rounding k leaves.
template <class Real>
GELU_KERNELS_HD Real normal_density_factor(Real s) {
  return horner(s, 0x1.988454p-2f, -0x1.6dfc2ap-29f);
}

// Phi(-a) 2^(k a^2) a/z for z = 2.5 a / (a + 2.5) and a <= 38.8125; relative error 2^-54.5.
GELU_KERNELS_HD double normal_value_factor(double z) {
  return horner(z - 0x1.4p0, 0x1.21725231700b8p-2, -0x1.1c3977a85bbep-3, 0x1.14cc216dd2fdap-5,
                0x1.f0063fbfdb438p-10, -0x1.5ff91e13d3586p-9, -0x1.beade9e0d8a3cp-13,
                0x1.1712cff1bc698p-12, 0x1.0b1ed095797efp-14, -0x1.6d0b21ffbb683p-16,
                -0x1.d8f4c48597dfcp-17, -0x1.a47fe3f874e82p-21, 0x1.042f12a95ade6p-19,
                0x1.b2d3d208683b8p-21, -0x1.42aaf3fd31418p-26, -0x1.413cc7f013961p-23,
                -0x1.099ff6f6694fp-24, -0x1.0e84253fb3d4ep-30, 0x1.90f1be08da8dcp-27,
                0x1.ca244a733dba6p-28, 0x1.ecb9006dd79cp-31, -0x1.6defa934889dep-30,
                -0x1.bb59246e28781p-31, 0x1.f0633b424c4a2p-36, 0x1.494a8405a67e7p-33,
                0x1.b1dd95bfc3989p-36, -0x1.619064a5a14b6p-37, -0x1.62006cf5171ep-39);
}

// D(a) 2^(k a^2) / (root - a) for v = a / (a + 4.0) and a <= 38.8125; relative error 2^-56.5.
GELU_KERNELS_HD double normal_derivative_factor(double v) {
  return horner(v - 0x1p-1, 0x1.d94de78425462p-2, -0x1.a763001ac67e6p-3, 0x1.ef4ff80137909p-3,
                -0x1.cc1e2623d9bc3p-3, 0x1.37754d816ff37p-3, -0x1.d4c8222994caep-5,
                -0x1.443f63f57e756p-7, 0x1.85999bb84efdfp-6, -0x1.25380cb710ec4p-8,
                -0x1.2e936440a2018p-7, 0x1.dafb1ccd382a3p-9, 0x1.298353b43782ap-8,
                -0x1.083465a456d38p-9, -0x1.76d1052bfa7f5p-9, 0x1.c1822e1a47d5bp-11,
                0x1.0d3240348a955p-9, -0x1.9ccaa9d0879cfp-15, -0x1.6d51bbdef654fp-10,
                -0x1.bcd2a45fbf13fp-12, 0x1.45d86db329fa6p-11, 0x1.9be1b56b3badap-12);
}

// phi(a) 2^(k s) for s = a^2: 1/sqrt(2 pi), and what rounding k leaves.
GELU_KERNELS_HD double normal_density_factor(double s) {
  return horner(s, 0x1.9884533d43651p-2, -0x1.9f54350ccc4c3p-59);
}

// (1 + log2 Phi(-a)) / a. Every bf16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_cdf(bf16, Real a) {
  return horner(a, -0x1.26b0c4p0f, -0x1.d5ec5p-2f, -0x1.b6cf84p-5f, 0x1.136fcap-7f,
                -0x1.ed9006p-11f, 0x1.28a4eap-14f, -0x1.bbb74ep-19f, 0x1.6b1048p-24f,
                -0x1.db5a34p-31f);
}

// log2(D(a) / (1/2 - slope a)) / a. Every bf16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_derivative(bf16, Real a) {
  return horner(a, -0x1.8838ccp-2f, -0x1.1f9dd6p-1f, -0x1.b1a72cp-5f, 0x1.b6b902p-7f,
                -0x1.4237d8p-9f, 0x1.49c4a2p-12f, -0x1.c4130ap-16f, 0x1.88ad9ap-20f,
                -0x1.84da62p-25f, 0x1.4d5b5ap-31f);
}

// (1 + log2 Phi(-a)) / a. Every fp16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_cdf(fp16, Real a) {
  return horner(a, -0x1.26aeacp0f, -0x1.d636f4p-2f, -0x1.af1fcep-5f, 0x1.e0990ep-8f,
                -0x1.892c8cp-12f, -0x1.5b142ap-14f, 0x1.26b2b8p-16f, -0x1.1ab1fp-20f);
}

// log2(D(a) / (1/2 - slope a)) / a. Every fp16 input falls inside its rounding interval.
template <class Real>
GELU_KERNELS_HD Real normal_log2_derivative(fp16, Real a) {
  return horner(a, -0x1.88644ap-2f, -0x1.1f0e14p-1f, -0x1.c1dec4p-5f, 0x1.e9972cp-7f,
                -0x1.91ee7p-9f, 0x1.c98e08p-12f, -0x1.3bae1p-15f, 0x1.881b78p-20f);
}

// (2^32 Phi(-a))^(1/16) for a <= 6.25; relative error of Phi(-a) 2^-19.8 e^(a^2/8).
template <class Real>
GELU_KERNELS_HD Real normal_tail_root(Real a) {
  return horner(a, 0x1.ea4afcp1f, -0x1.87373ep-3f, -0x1.2463cap-4f, -0x1.4f0c78p-8f, 0x1.3b11cap-9f,
                -0x1.0669d6p-15f, -0x1.0e35dcp-15f, 0x1.a4c32ep-19f, -0x1.9f7c22p-24f);
}

}  // namespace gelu_kernels
