// The list of gates: the only place that names them all.
#pragma once

#include "csrc/gates/cauchy.h"
#include "csrc/gates/laplace.h"
#include "csrc/gates/logistic.h"
#include "csrc/gates/logistic_1702.h"
#include "csrc/gates/normal.h"
#include "csrc/gates/normal_tanh.h"

// _(name, type, the `approximate=` of fused_gelu that selects it, or nullptr, the name that models
// have for it, or nullptr)
#define GELU_KERNELS_FOR_EACH_GATE(_)                     \
  _(normal, Normal, "none", "gelu")                       \
  _(normal_tanh, NormalTanh, "tanh", "gelu_tanh")         \
  _(logistic_1702, Logistic1702, "sigmoid", "quick_gelu") \
  _(logistic, Logistic, nullptr, "silu")                  \
  _(laplace, Laplace, nullptr, nullptr)                   \
  _(cauchy, Cauchy, nullptr, nullptr)

namespace gelu_kernels {

enum class Gate {
#define GELU_KERNELS_ENUMERATE(name, Type, ...) name,
  GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_ENUMERATE)
#undef GELU_KERNELS_ENUMERATE
};

enum class Dtype { float64, float32, float16, bfloat16 };

}  // namespace gelu_kernels
