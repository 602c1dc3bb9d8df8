// The list of passes over the elements of a gate.
#pragma once

// A name, the formula of an element in csrc/gates/pointwise.h, and whether it takes a bias.
#define GELU_KERNELS_FOR_EACH_PASS(_)                               \
  _(forward, Forward, true)                /* y; x */               \
  _(backward, Backward, true)              /* dx; dy, x */          \
  _(double_backward, DoubleBackward, true) /* dx; ddx, dy, x */     \
  _(glu_forward, GluForward, false)        /* y; x, up */           \
  _(glu_backward, GluBackward, false)      /* dx, dup; dy, x, up */ \
  _(cdf_forward, CdfForward, false)        /* y; x, loc, scale */

namespace gelu_kernels {

// One thing for each pass, such as its loop.
template <class T>
struct Passes {
#define GELU_KERNELS_MEMBER(name, Function, takes_bias) T name;
  GELU_KERNELS_FOR_EACH_PASS(GELU_KERNELS_MEMBER)
#undef GELU_KERNELS_MEMBER
};

}  // namespace gelu_kernels
