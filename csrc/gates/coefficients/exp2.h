// Written by `python -m fit.exp2`; do not edit.
// clang-format off
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// 2^f for |f| <= 1/2; relative error of 2^f 2^-18.4.
template <class Real>
GELU_KERNELS_HD Real exp2_polynomial_4(Real f) {
  return polynomial(f, 0x1p0f, 0x1.62e12cp-1f, 0x1.ec036ep-3f, 0x1.c9fc6cp-5f, 0x1.3a0538p-7f);
}

// 2^f for |f| <= 1/2; relative error of 2^f 2^-23.4.
template <class Real>
GELU_KERNELS_HD Real exp2_polynomial_5(Real f) {
  return polynomial(f, 0x1p0f, 0x1.62e42ap-1f, 0x1.ebf9c2p-3f, 0x1.c6b6d8p-5f, 0x1.3ce8acp-7f,
                    0x1.5bda4p-10f);
}

// 2^f - 1 for |f| <= 1/2; relative error of 2^f 2^-23.4.
template <class Real>
GELU_KERNELS_HD Real exp2m1_polynomial_5(Real f) {
  return f * polynomial(f, 0x1.62e42ap-1f, 0x1.ebf9c2p-3f, 0x1.c6b6d8p-5f, 0x1.3ce8acp-7f,
                        0x1.5bda4p-10f);
}

// 2^f for |f| <= 1/2; relative error of 2^f 2^-28.3.
template <class Real>
GELU_KERNELS_HD Real exp2_polynomial_6(Real f) {
  return polynomial(f, 0x1p0f, 0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6af7cp-5f, 0x1.3b2dep-7f,
                    0x1.5f082ep-10f, 0x1.416b5ep-13f);
}

// 2^f - 1 for |f| <= 1/2; relative error of 2^f 2^-28.3.
template <class Real>
GELU_KERNELS_HD Real exp2m1_polynomial(Real f) {
  return f * polynomial(f, 0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6af7cp-5f, 0x1.3b2dep-7f,
                        0x1.5f082ep-10f, 0x1.416b5ep-13f);
}

// 2^f for |f| <= 1/2; relative error of 2^f 2^-57.8.
GELU_KERNELS_HD double exp2_polynomial(double f) {
  return polynomial(f, 0x1p0, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c59cp-3, 0x1.c6b08d704a0d5p-5,
                    0x1.3b2ab6fba11f4p-7, 0x1.5d87fe78b38d1p-10, 0x1.4309130c01629p-13,
                    0x1.ffcbfbf97b202p-17, 0x1.62bfcdddd3df3p-20, 0x1.b5260c67e6119p-24,
                    0x1.e611a152efaap-28, 0x1.e810735b3e2afp-32);
}

// 2^f - 1 for |f| <= 1/2; relative error of 2^f 2^-57.8.
GELU_KERNELS_HD double exp2m1_polynomial(double f) {
  return f * polynomial(f, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c59cp-3, 0x1.c6b08d704a0d5p-5,
                        0x1.3b2ab6fba11f4p-7, 0x1.5d87fe78b38d1p-10, 0x1.4309130c01629p-13,
                        0x1.ffcbfbf97b202p-17, 0x1.62bfcdddd3df3p-20, 0x1.b5260c67e6119p-24,
                        0x1.e611a152efaap-28, 0x1.e810735b3e2afp-32);
}

}  // namespace gelu_kernels
