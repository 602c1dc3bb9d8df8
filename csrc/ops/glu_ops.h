// The core operators of the gated linear unit as C++ functions that go through the dispatcher, and
// the checks that their kernels share. The gate and what it multiplies are two tensors, or the
// first and the second half of the last dimension of one.
#pragma once

#include "csrc/ops/gate_ops.h"

namespace gelu_kernels {

// y = g(x)·up
at::Tensor glu_forward(const at::Tensor& x, const at::Tensor& up, std::string_view gate);
// dx = dy·up·g'(x) and dup = dy·g(x)
std::tuple<at::Tensor, at::Tensor> glu_backward(const at::Tensor& dy, const at::Tensor& x,
                                                const at::Tensor& up, std::string_view gate);
// The same for the halves of x; dx has its shape.
at::Tensor glu_halves_forward(const at::Tensor& x, std::string_view gate);
at::Tensor glu_halves_backward(const at::Tensor& dy, const at::Tensor& x, std::string_view gate);

// The public operator; without up, of the halves of x.
C10_EXPORT at::Tensor fused_glu(const at::Tensor& x, const std::optional<at::Tensor>& up,
                                std::string_view gate);

// All arguments of an operator on x and up. Returns the gate.
C10_EXPORT Gate check_glu(const char* op, const at::Tensor& x, const at::Tensor& up,
                          std::string_view gate,
                          const std::optional<at::Tensor>& dy = std::nullopt);

// That x has halves.
void check_halves(const char* op, const at::Tensor& x);
struct Halves {
  at::Tensor x, up;
};
// Views of x, which is checked.
Halves halves_of(const char* op, const at::Tensor& x);
// All arguments of an operator on the halves of x; dy is like one of them.
struct CheckedHalves {
  Halves halves;
  Gate gate;
};
C10_EXPORT CheckedHalves check_glu_halves(const char* op, const at::Tensor& x,
                                          std::string_view gate,
                                          const std::optional<at::Tensor>& dy = std::nullopt);

}  // namespace gelu_kernels
