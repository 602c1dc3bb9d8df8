// A number in both types: converting double to float is slow on a GPU.
#pragma once

#include <type_traits>

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

struct Factor {
  double wide;
  float narrow;

  GELU_KERNELS_HD Factor(double x) : wide(x), narrow(static_cast<float>(x)) {}
  template <class Real>
  GELU_KERNELS_HD Real as() const {
    if constexpr (std::is_same_v<Real, double>) return wide;
    return narrow;
  }
};

}  // namespace gelu_kernels
