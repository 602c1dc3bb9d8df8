// Written by `python -m fit.cauchy`; do not edit.
// clang-format off
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

template <class Type>
struct CauchyConstants;

template <>
struct CauchyConstants<fp32> {
  static constexpr float limit = 0x1p125f;
  static constexpr float huge = 0x1p100f;
  static constexpr float huge_scale = 0x1p-62f;
  static constexpr float square_limit = 0x1.3p62f;
  static constexpr float split = 0x1.cp-1f;
  static constexpr float near_centre = 0x1.8p-2f;
  static constexpr float far_centre = 0x1.4p-1f;
  static constexpr float one_over_pi = 0x1.45f306p-2f;
  static constexpr float two_over_pi = 0x1.45f306p-1f;
  static constexpr float half_limit = 0x1p60f;
  static constexpr float tail_limit = 0x1p31f;
};

template <>
struct CauchyConstants<fp64> {
  static constexpr double limit = 0x1p1000;
  static constexpr double huge = 0x1p975;
  static constexpr double huge_scale = 0x1p-500;
  static constexpr double square_limit = 0x1.3p510;
  static constexpr double split = 0x1.cp-1;
  static constexpr double near_centre = 0x1.8p-2;
  static constexpr double far_centre = 0x1.4p-1;
  static constexpr double one_over_pi = 0x1.45f306dc9c883p-2;
  static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
};

// atan(q) / (pi q) for s = q^2 and q <= 1/0.875; relative error 2^-24.6.
template <class Real>
GELU_KERNELS_HD Real cauchy_arctangent(Real s) {
  return polynomial(s, 0x1.45f306p-2f, -0x1.b2974cp-4f, 0x1.048d5p-4f, -0x1.7056eap-5f,
                    0x1.0c09f4p-5f, -0x1.54eca6p-6f, 0x1.17126cp-7f, 0x1.9f80ep-13f,
                    -0x1.56c1c2p-9f, 0x1.6a3d66p-10f, -0x1.056ae8p-12f);
}

// (D(a) - 1/2 + 2 a/pi) / a^3 for t = a^2 - 0.375 and a <= 0.875, of D(a); relative error 2^-28.3.
template <class Real>
GELU_KERNELS_HD Real cauchy_derivative_near(Real t) {
  return polynomial(t, 0x1.46575ep-2f, -0x1.aaf5bap-3f, 0x1.26beacp-3f, -0x1.9f73eep-4f,
                    0x1.27aacep-4f, -0x1.a87526p-5f, 0x1.396072p-5f, -0x1.c6a886p-6f,
                    0x1.ae6e8cp-7f);
}

// D(1/q) / q^3 for t = q^2 - 0.625 and q <= 1/0.875; relative error 2^-25.7.
template <class Real>
GELU_KERNELS_HD Real cauchy_derivative_far(Real t) {
  return polynomial(t, 0x1.e174eep-4f, -0x1.6d80cep-4f, 0x1.e9b714p-5f, -0x1.3bc90ep-5f,
                    0x1.904ddp-6f, -0x1.f79236p-7f, 0x1.3d5922p-7f, -0x1.8462c2p-8f, 0x1.af2f8cp-9f,
                    -0x1.2f852p-9f, 0x1.2d2abap-9f, -0x1.2fa794p-10f);
}

// atan(q) / (pi q) for s = q^2 and q <= 1/0.875; relative error 2^-53.8.
GELU_KERNELS_HD double cauchy_arctangent(double s) {
  return polynomial(s, 0x1.45f306dc9c883p-2, -0x1.b2995e7b7ba68p-4, 0x1.04c26be3d4addp-4,
                    -0x1.7483759d4cea8p-5, 0x1.21bb95f1bb757p-5, -0x1.da1be47c78248p-6,
                    0x1.912d99f1a95d9p-6, -0x1.5bc2281750779p-6, 0x1.3340179b5f201p-6,
                    -0x1.14a3d8f42ca8bp-6, 0x1.ffd47d41d7b22p-7, -0x1.ef1f6c03a612ep-7,
                    0x1.fb58e052ec14ap-7, -0x1.0df0ea07bdfbcp-6, 0x1.196ff82d179e7p-6,
                    -0x1.0c5c51e8f07e5p-6, 0x1.ba9cbb560aab1p-7, -0x1.2f210f2b8a0bbp-7,
                    0x1.4dccd0adb3f97p-8, -0x1.1dfda37cc12c1p-9, 0x1.6dbfcb0f4eb8bp-11,
                    -0x1.47a32da3f67fbp-13, 0x1.6e330562e217ap-16, -0x1.7feb6d55c667fp-20);
}

// (D(a) - 1/2 + 2 a/pi) / a^3 for t = a^2 - 0.375 and a <= 0.875, of D(a); relative error 2^-54.6.
GELU_KERNELS_HD double cauchy_derivative_near(double t) {
  return polynomial(t, 0x1.465762a0841c2p-2, -0x1.aaf5ca212d89p-3, 0x1.26bea658db3acp-3,
                    -0x1.9f7b615a44e5cp-4, 0x1.27e064fcd3df3p-4, -0x1.a7e71dafe984cp-5,
                    0x1.30caeac31950dp-5, -0x1.b764b3ccb5b2ap-6, 0x1.3d45fed6d0483p-6,
                    -0x1.cac746eeb6c7cp-7, 0x1.4c01053cc0b98p-7, -0x1.e0bf02eaadf6ep-8,
                    0x1.5c8cf91f6542dp-8, -0x1.fccafd9998c57p-9, 0x1.70a12b117a2c7p-9,
                    -0x1.ed4a0d969ca63p-10, 0x1.50550a649b84p-10, -0x1.6e6367a0b2899p-10,
                    0x1.77680fbe39e38p-10, -0x1.3ab7a4d0d22bep-11);
}

// D(1/q) / q^3 for t = q^2 - 0.625 and q <= 1/0.875; relative error 2^-55.0.
GELU_KERNELS_HD double cauchy_derivative_far(double t) {
  return polynomial(t, 0x1.e174ee3441753p-4, -0x1.6d80c934216ap-4, 0x1.e9b688278ee6ap-5,
                    -0x1.3bcafee5cda05p-5, 0x1.90704916cb35fp-6, -0x1.f72f8dcc8142dp-7,
                    0x1.3a6e05a4fbb99p-7, -0x1.87928e0f42639p-8, 0x1.e6750cfce4a6bp-9,
                    -0x1.2da3efa8ba5a1p-9, 0x1.7598acf993d7p-10, -0x1.ce43227de52dap-11,
                    0x1.1dc00d783789cp-11, -0x1.61072b2e8897ep-12, 0x1.b4521efc4e814p-13,
                    -0x1.0ddec046c1b79p-13, 0x1.4a422c1476392p-14, -0x1.8ecaa3f113ff4p-15,
                    0x1.05221b5d15d23p-15, -0x1.6f26747791b4cp-16, 0x1.5c1c4a0f3f532p-17,
                    -0x1.015d7251f8d52p-19, 0x1.1d05cf12ba78bp-18, -0x1.d06f6179aac94p-18,
                    0x1.8be03e1ccc9b3p-19);
}

// (asin(q) / (q sqrt(1 - rho)) - 1) / (pi rho) for rho = q^2. Value and derivative of every bf16
// input fall inside their rounding intervals.
template <class Real>
GELU_KERNELS_HD Real cauchy_arcsine(bf16, Real rho) {
  return polynomial(rho, 0x1.b2996ap-3f, 0x1.5bbb5cp-3f, 0x1.1eb3e6p-3f, 0x1.920b86p-3f,
                    -0x1.4f247p-3f, 0x1.16d10cp-1f);
}

// (asin(q) / (q sqrt(1 - rho)) - 1) / (pi rho) for rho = q^2. Value and derivative of every fp16
// input fall inside their rounding intervals.
template <class Real>
GELU_KERNELS_HD Real cauchy_arcsine(fp16, Real rho) {
  return polynomial(rho, 0x1.b2998p-3f, 0x1.5ba4a2p-3f, 0x1.2ab21ap-3f, 0x1.0532dp-3f,
                    0x1.bfd4d2p-4f, 0x1.cc9aecp-3f, -0x1.3b1228p-2f, 0x1.3d2c78p-1f);
}

// 2^32 F(-a) times the denominator for a <= 2^31; error of F(-a) 2^-19.2, or a relative one 100
// times as large.
template <class Real>
GELU_KERNELS_HD Real cauchy_tail_numerator(Real a) {
  return polynomial(a, 0x1.deec8ap30f, 0x1.686d18p31f, 0x1.4e1d8cp31f, 0x1.45e4eap30f);
}

// What F(-a) is a quotient by.
template <class Real>
GELU_KERNELS_HD Real cauchy_tail_denominator(Real a) {
  return polynomial(a, 0x1.deecf4p-1f, 0x1.006408p1f, 0x1.4b1388p1f, 0x1.05c0e6p1f, 0x1p0f);
}

// F(-a) times the denominator; error of F(-a) 2^-14.8.
template <class Real>
GELU_KERNELS_HD Real cauchy_estimate_numerator(Real a) {
  return polynomial(a, 0x1.f17606p-2f, 0x1.fd0ecp-2f, 0x1.4782eep-2f);
}

// What F(-a) is a quotient by.
template <class Real>
GELU_KERNELS_HD Real cauchy_estimate_denominator(Real a) {
  return polynomial(a, 0x1.f16d56p-1f, 0x1.9e077ep0f, 0x1.9f4ce8p0f, 0x1p0f);
}

// atan(q) / (pi q) for s = q^2 and q <= 1; relative error 2^-17.8.
template <class Real>
GELU_KERNELS_HD Real cauchy_half_arctangent(Real s) {
  return polynomial(s, 0x1.45f2aap-2f, -0x1.b22876p-4f, 0x1.fe2552p-5f, -0x1.3c284p-5f,
                    0x1.2bc8ccp-6f, -0x1.194134p-8f);
}

}  // namespace gelu_kernels
