// Written by `python -m fit.logistic_of_cubic`; do not edit.
// clang-format off
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

template <class Type>
struct NormalTanhConstants;

template <class Type>
struct Logistic1702Constants;

template <class Type>
struct LogisticConstants;

template <>
struct NormalTanhConstants<float> {
  static constexpr float log2_scale = 0x1.4p5f;
  static constexpr float scale = 0x1p40f;
  static constexpr float limit = 0x1.61p3f;
  static constexpr float k1_hi = 0x1.26aecp1f;
  static constexpr float k1_lo = 0x1.0de73ap-22f;
  static constexpr float k3_hi = 0x1.a5a7dp-4f;
  static constexpr float k3_lo = -0x1.151aaep-29f;
  static constexpr float slope_0 = 0x1.988454p0f;
  static constexpr float slope_2 = 0x1.b6676cp-3f;
  static constexpr float root_hi = 0x1.8142ap-1f;
  static constexpr float root_lo = -0x1.85a06cp-27f;
  static constexpr float root_exp = 0x1.05ap-1f;
  static constexpr float root_exp_squared = 0x1.0b5fa4p-2f;
  static constexpr float twice_one = 0x1.c00e86p41f;
  static constexpr float one_squared = 0x1.88196cp81f;
  static constexpr float w0_hi = 0x1.2e24a8p1f;
  static constexpr float w0_lo = 0x1.b5285ep-21f;
  static constexpr float w1_hi = 0x1.3d47p-4f;
  static constexpr float w1_lo = 0x1.1b2b9p-21f;
  static constexpr float h0 = 0x1.c099ecp40f;
  static constexpr float h1 = -0x1.ba8a3p38f;
  static constexpr float h2 = 0x1.8814fap37f;
  static constexpr float tail_limit = 0x1.6cp2f;
};

template <>
struct NormalTanhConstants<double> {
  static constexpr double log2_scale = 0x1.8p6;
  static constexpr double scale = 0x1p96;
  static constexpr double limit = 0x1.5a8p4;
  static constexpr double k1_hi = 0x1.26aec21bce75p1;
  static constexpr double k1_lo = 0x1.2976942cda18ap-48;
  static constexpr double k3_hi = 0x1.a5a7cf7572a98p-4;
  static constexpr double k3_lo = -0x1.b91c940e4cfcfp-58;
  static constexpr double slope_0 = 0x1.9884533d43651p0;
  static constexpr double slope_2 = 0x1.b6676bf7450fp-3;
  static constexpr double root_hi = 0x1.81429f9e97e4dp-1;
  static constexpr double root_lo = -0x1.4f523ed77dbdcp-55;
  static constexpr double root_exp = 0x1.a68p-1;
  static constexpr double root_exp_squared = 0x1.5ca52p-1;
  static constexpr double twice_one = 0x1.69c8f2176ed02p98;
  static constexpr double one_squared = 0x1.ff48588140147p194;
  static constexpr double w0_hi = 0x1.2e24aed4a17ap1;
  static constexpr double w0_lo = 0x1.176f3759d9b61p-48;
  static constexpr double w1_hi = 0x1.3d478d95c7ap-4;
  static constexpr double w1_lo = 0x1.33e51db8d4cf5p-49;
  static constexpr double h0 = 0x1.247ac0ba1bc4dp98;
  static constexpr double h1 = -0x1.20870d15318d8p96;
  static constexpr double h2 = 0x1.ff428c4520364p94;
};

template <>
struct NormalTanhConstants<fp16> {
  static constexpr float k1 = 0x1.26aec2p1f;
  static constexpr float k3 = 0x1.a5a7dp-4f;
  static constexpr float slope_0 = 0x1.988454p0f;
  static constexpr float slope_2 = 0x1.b6676ap-3f;
  static constexpr float one = 0x1.03cp0f;
  static constexpr float exp2_0 = 0x1.03cp0f;
  static constexpr float exp2_1 = 0x1.6816f4p-1f;
  static constexpr float exp2_2 = 0x1.f32ea6p-3f;
  static constexpr float exp2_3 = 0x1.cd5fe8p-5f;
  static constexpr float exp2_4 = 0x1.418cfap-7f;
  static constexpr float exp2_5 = 0x1.60f292p-10f;
  static constexpr float share = 0x1.7p-4f;
  static constexpr float share_k1 = 0x1.99fe46p4f;
  static constexpr float share_k3 = 0x1.1be634p7f;
  static constexpr float share_slope_0 = 0x1.988454p0f;
  static constexpr float share_slope_2 = 0x1.a850bep4f;
};

template <>
struct Logistic1702Constants<float> {
  static constexpr float log2_scale = 0x1.4p5f;
  static constexpr float scale = 0x1p40f;
  static constexpr float limit = 0x1.099p6f;
  static constexpr float k1_hi = 0x1.3a4cbep1f;
  static constexpr float k1_lo = -0x1.c08ecap-26f;
  static constexpr float k3_hi = 0x0p0f;
  static constexpr float k3_lo = 0x0p0f;
  static constexpr float slope_0 = 0x1.b3b646p0f;
  static constexpr float slope_2 = 0x0p0f;
  static constexpr float root_hi = 0x1.80974ap-1f;
  static constexpr float root_lo = 0x1.8af8f8p-27f;
  static constexpr float root_exp = 0x1.f96p-1f;
  static constexpr float root_exp_squared = 0x1.f2d5f2p-1f;
  static constexpr float twice_one = 0x1.c5b73cp42f;
  static constexpr float one_squared = 0x1.9210fep83f;
  static constexpr float w0_hi = 0x1.3a4cbep1f;
  static constexpr float w0_lo = -0x1.c08ecap-26f;
  static constexpr float w1_hi = 0x0p0f;
  static constexpr float w1_lo = 0x0p0f;
  static constexpr float h0 = 0x1.7d1db4p42f;
  static constexpr float h1 = 0x0p0f;
  static constexpr float h2 = 0x0p0f;
  static constexpr float tail_limit = 0x1.a18p3f;
};

template <>
struct Logistic1702Constants<double> {
  static constexpr double log2_scale = 0x1.8p6;
  static constexpr double scale = 0x1p96;
  static constexpr double limit = 0x1.bdf4p8;
  static constexpr double k1_hi = 0x1.3a4cbdc7ee26bp1;
  static constexpr double k1_lo = 0x1.68797025e71e1p-54;
  static constexpr double k3_hi = 0x0p0;
  static constexpr double k3_lo = 0x0p0;
  static constexpr double slope_0 = 0x1.b3b645a1cac08p0;
  static constexpr double slope_2 = 0x0p0;
  static constexpr double root_hi = 0x1.80974a62be3dfp-1;
  static constexpr double root_lo = -0x1.b12c858d26bfp-55;
  static constexpr double root_exp = 0x1.f98p-1;
  static constexpr double root_exp_squared = 0x1.f3152p-1;
  static constexpr double twice_one = 0x1.c5d3f6467ef87p98;
  static constexpr double one_squared = 0x1.9243ea8ab13e1p195;
  static constexpr double w0_hi = 0x1.3a4cbdc7ee26bp1;
  static constexpr double w0_lo = 0x1.68797025e71e1p-54;
  static constexpr double w1_hi = 0x0p0;
  static constexpr double w1_lo = 0x0p0;
  static constexpr double h0 = 0x1.7d4df9130c471p98;
  static constexpr double h1 = 0x0p0;
  static constexpr double h2 = 0x0p0;
};

template <>
struct Logistic1702Constants<fp16> {
  static constexpr float k1 = 0x1.3a4cbep1f;
  static constexpr float k3 = 0x0p0f;
  static constexpr float slope_0 = 0x1.b3b644p0f;
  static constexpr float slope_2 = 0x0p0f;
  static constexpr float one = 0x1.048p0f;
  static constexpr float exp2_0 = 0x1.048p0f;
  static constexpr float exp2_1 = 0x1.692124p-1f;
  static constexpr float exp2_2 = 0x1.f49fbcp-3f;
  static constexpr float exp2_3 = 0x1.ceb508p-5f;
  static constexpr float exp2_4 = 0x1.427ad6p-7f;
  static constexpr float exp2_5 = 0x1.61f78ap-10f;
  static constexpr float share = 0x1p-6f;
  static constexpr float share_k1 = 0x1.3a4cbep7f;
  static constexpr float share_k3 = 0x0p0f;
  static constexpr float share_slope_0 = 0x1.b3b646p0f;
  static constexpr float share_slope_2 = 0x0p0f;
};

template <>
struct LogisticConstants<float> {
  static constexpr float log2_scale = 0x1.4p5f;
  static constexpr float scale = 0x1p40f;
  static constexpr float limit = 0x1.c3fp6f;
  static constexpr float k1_hi = 0x1.715476p0f;
  static constexpr float k1_lo = 0x1.4ae0cp-26f;
  static constexpr float k3_hi = 0x0p0f;
  static constexpr float k3_lo = 0x0p0f;
  static constexpr float slope_0 = 0x1p0f;
  static constexpr float slope_2 = 0x0p0f;
  static constexpr float root_hi = 0x1.474974p0f;
  static constexpr float root_lo = -0x1.bdf6fap-27f;
  static constexpr float root_exp = 0x1.72p-1f;
  static constexpr float root_exp_squared = 0x1.0b62p-1f;
  static constexpr float twice_one = 0x1.4c2dc2p42f;
  static constexpr float one_squared = 0x1.af06b6p82f;
  static constexpr float w0_hi = 0x1.715476p0f;
  static constexpr float w0_lo = 0x1.4ae0cp-26f;
  static constexpr float w1_hi = 0x0p0f;
  static constexpr float w1_lo = 0x0p0f;
  static constexpr float h0 = 0x1.e01a22p40f;
  static constexpr float h1 = 0x0p0f;
  static constexpr float h2 = 0x0p0f;
  static constexpr float tail_limit = 0x1.63p4f;
};

template <>
struct LogisticConstants<double> {
  static constexpr double log2_scale = 0x1.8p6;
  static constexpr double scale = 0x1p96;
  static constexpr double limit = 0x1.7b8p9;
  static constexpr double k1_hi = 0x1.71547652b82fep0;
  static constexpr double k1_lo = 0x1.777d0ffda0d24p-56;
  static constexpr double k3_hi = 0x0p0;
  static constexpr double k3_lo = 0x0p0;
  static constexpr double slope_0 = 0x1p0;
  static constexpr double slope_2 = 0x0p0;
  static constexpr double root_hi = 0x1.474973c84120bp0;
  static constexpr double root_lo = 0x1.f8d74bc9ac154p-54;
  static constexpr double root_exp = 0x1.726p-1;
  static constexpr double root_exp_squared = 0x1.0becd2p-1;
  static constexpr double twice_one = 0x1.4c83f188194b9p98;
  static constexpr double one_squared = 0x1.afe67e7a16c76p194;
  static constexpr double w0_hi = 0x1.71547652b82fep0;
  static constexpr double w0_lo = 0x1.777d0ffda0d24p-56;
  static constexpr double w1_hi = 0x0p0;
  static constexpr double w1_lo = 0x0p0;
  static constexpr double h0 = 0x1.e11364914798bp96;
  static constexpr double h1 = 0x0p0;
  static constexpr double h2 = 0x0p0;
};

template <>
struct LogisticConstants<fp16> {
  static constexpr float k1 = 0x1.715478p0f;
  static constexpr float k3 = 0x0p0f;
  static constexpr float slope_0 = 0x1.000002p0f;
  static constexpr float slope_2 = 0x0p0f;
  static constexpr float one = 0x1.f2bff6p0f;
  static constexpr float exp2_0 = 0x1.f2cp0f;
  static constexpr float exp2_1 = 0x1.59b50ap0f;
  static constexpr float exp2_2 = 0x1.df3e72p-2f;
  static constexpr float exp2_3 = 0x1.baf276p-4f;
  static constexpr float exp2_4 = 0x1.34b518p-6f;
  static constexpr float exp2_5 = 0x1.52d9d4p-9f;
  static constexpr float share = 0x1p-7f;
  static constexpr float share_k1 = 0x1.715476p7f;
  static constexpr float share_k3 = 0x0p0f;
  static constexpr float share_slope_0 = 0x1p0f;
  static constexpr float share_slope_2 = 0x0p0f;
};

}  // namespace gelu_kernels
