// The core operators as C++ functions that go through the dispatcher, and what their kernels share:
// argument checks and the names of gates.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/gates/gates.h"

namespace gelu_kernels {

// y = g(x + bias), bias along the last dimension.
at::Tensor gate_forward(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                        std::string_view gate);
// dx = dy·g'(x + bias)
at::Tensor gate_backward(const at::Tensor& dy, const at::Tensor& x,
                         const std::optional<at::Tensor>& bias, std::string_view gate);
// The same, and dbias, its sum over all but the last dimension.
std::tuple<at::Tensor, at::Tensor> gate_backward_bias(const at::Tensor& dy, const at::Tensor& x,
                                                      const at::Tensor& bias,
                                                      std::string_view gate);
// ddx·dy·g''(x + bias)
at::Tensor gate_double_backward(const at::Tensor& ddx, const at::Tensor& dy, const at::Tensor& x,
                                const std::optional<at::Tensor>& bias, std::string_view gate);

// The public operators.
C10_EXPORT at::Tensor fused_gelu(const at::Tensor& x, std::string_view approximate);
C10_EXPORT at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias,
                                      std::string_view approximate);
C10_EXPORT at::Tensor fused_gate(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                                 std::string_view gate);
// Compiler, versions and instruction sets, as pairs of a name and a value.
C10_EXPORT std::vector<std::pair<std::string, std::string>> build_info();

// What a gate is called: `gate=`, and in fused_gelu `approximate=`, null if it has no such name.
struct GateNames {
  Gate gate;
  const char *name, *approximate;
};
C10_EXPORT at::ArrayRef<GateNames> gates();

// Errors are Python exceptions that name the operator and the argument.
Gate gate_named(const char* op, std::string_view name);
void check_input(const char* op, const at::Tensor& x, const char* name = "x");
void check_bias(const char* op, const at::Tensor& bias, const at::Tensor& x);

// The name of the gate that `approximate` selects.
C10_EXPORT std::string_view gate_for(const char* op, std::string_view approximate);
// Under autocast x comes from a matrix product in the low precision, and a tensor beside it may be
// a float32 parameter: that is cast to the dtype of x.
at::Tensor cast_under_autocast(const at::Tensor& t, const at::Tensor& x);
// The bias, cast like that and checked.
std::optional<at::Tensor> bias_for(const char* op, const std::optional<at::Tensor>& bias,
                                   const at::Tensor& x);

struct Argument {
  const char* name;
  const at::Tensor& tensor;
};
// The shape, layout, dtype and device of an argument are those of another.
void check_like(const char* op, const Argument& argument, const Argument& other);

// All arguments of a core operator; what has the shape of x is named. Returns the gate.
C10_EXPORT Gate check_gate(const char* op, const at::Tensor& x,
                           const std::optional<at::Tensor>& bias, std::string_view gate,
                           at::ArrayRef<Argument> like_x = {});

// The sum over all but the last dimension.
at::Tensor sum_to_bias(const at::Tensor& dx);

}  // namespace gelu_kernels
