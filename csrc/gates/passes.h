// The passes over the elements of a gate: a thing for each of them, such as its loop.
#pragma once

namespace gelu_kernels {

template <class T>
struct Passes {
  T forward;          // y; x, bias
  T backward;         // dx; dy, x, bias
  T double_backward;  // dx; ddx, dy, x, bias
  T glu_forward;      // y; x, up
  T glu_backward;     // dx, dup; dy, x, up
};

}  // namespace gelu_kernels
