// Written by `python -m fit.codebook`; do not edit.
// clang-format off
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

// Of derivatives from -0.1290 to 1.1290; codes are for -0.1294 to 1.1343, half a step is 0.002488.
struct codebook_8bit {
  static constexpr float levels = 0x1.92p7f;
  static constexpr float zero = 0x1.ap4f;
  static constexpr float nan = 0x1.fep7f;
};

// Of derivatives from -0.1290 to 1.1290; codes are for -0.2000 to 1.2000, half a step is 0.050000.
struct codebook_4bit {
  static constexpr float levels = 0x1.4p3f;
  static constexpr float zero = 0x1p1f;
  static constexpr float nan = 0x1.ep3f;
};

}  // namespace gelu_kernels
