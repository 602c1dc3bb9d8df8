// The checks that all operators share. Errors are Python exceptions that name the operator and the
// argument.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Export.h>

#include <optional>
#include <string>
#include <string_view>

#include "csrc/gates/gates.h"

namespace gelu_kernels {

// The names of a gate: for `gate=`, for the `approximate=` of fused_gelu, and the one that models
// have for it, which the `gate=` of a public operator takes too.
struct GateNames {
  Gate gate;
  std::string_view name;
  std::optional<std::string_view> approximate, alias;
};
C10_EXPORT at::ArrayRef<GateNames> gates();

// The gate of a core operator.
Gate gate_named(const char* op, std::string_view name);
// The name of the gate that the `gate=` of a public operator selects.
std::string_view gate_name(const char* op, std::string_view gate);
// The name of the gate that `approximate=` selects.
C10_EXPORT std::string_view gate_for(const char* op, std::string_view approximate);

// As Python prints it: torch.float32.
std::string dtype_name(at::ScalarType dtype);

void check_dtype(const char* op, const at::Tensor& t, const char* name);
void check_input(const char* op, const at::Tensor& x);

struct Argument {
  const char* name;
  const at::Tensor& tensor;
};
// Checks that an argument fits x: one number, or a vector along the last dimension.
void check_along(const char* op, const Argument& argument, const at::Tensor& x);
// The same for a vector.
void check_bias(const char* op, const Argument& argument, const at::Tensor& x);
// Checks that an argument has the shape, layout, dtype and device of another.
void check_like(const char* op, const Argument& argument, const Argument& other);

// Checks that it has the layout, dtype and device of another.
void check_beside(const char* op, const Argument& argument, const Argument& other);

// Under autocast x comes from a low-precision matrix product while another tensor may be a float32
// parameter: this casts it to the dtype of x.
at::Tensor cast_under_autocast(at::Tensor t, const at::Tensor& x);
// The bias, cast in this way and checked.
std::optional<at::Tensor> bias_for(const char* op, std::optional<at::Tensor> bias,
                                   const at::Tensor& x);

}  // namespace gelu_kernels
