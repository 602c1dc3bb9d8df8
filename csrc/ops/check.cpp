#include "csrc/ops/check.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <string>

namespace gelu_kernels {

namespace {

constexpr std::optional<std::string_view> optional_name(const char* name) { return name; }
constexpr std::optional<std::string_view> optional_name(std::nullptr_t) { return std::nullopt; }

#define GELU_KERNELS_ROW(id, Type, approximate, alias) \
  {Gate::id, #id, optional_name(approximate), optional_name(alias)},
constexpr GateNames kGates[] = {GELU_KERNELS_FOR_EACH_GATE(GELU_KERNELS_ROW)};
#undef GELU_KERNELS_ROW

using Name = std::optional<std::string_view>;

// The gate that the argument names by one of its names.
template <class NamesOf>
const GateNames& find_gate(const char* op, const char* argument, std::string_view given,
                           const NamesOf& names_of) {
  for (const GateNames& gate : kGates) {
    for (const Name& name : names_of(gate)) {
      if (name == given) return gate;
    }
  }
  std::string all;
  for (const GateNames& gate : kGates) {
    for (const Name& name : names_of(gate)) {
      if (name) all += c10::str(" '", *name, "'");
    }
  }
  TORCH_CHECK_VALUE(false, "gelu_kernels::", op, ": ", argument, " must be one of", all, ", got '",
                    given, "'");
}

}  // namespace

at::ArrayRef<GateNames> gates() { return kGates; }

Gate gate_named(const char* op, std::string_view name) {
  return find_gate(op, "gate", name,
                   [](const GateNames& gate) { return std::array<Name, 1>{gate.name}; })
      .gate;
}

std::string_view gate_name(const char* op, std::string_view gate) {
  return find_gate(op, "gate", gate,
                   [](const GateNames& gate) { return std::array<Name, 2>{gate.name, gate.alias}; })
      .name;
}

std::string_view gate_for(const char* op, std::string_view approximate) {
  return find_gate(op, "approximate", approximate,
                   [](const GateNames& gate) { return std::array<Name, 1>{gate.approximate}; })
      .name;
}

std::string dtype_name(at::ScalarType dtype) {
  return c10::str("torch.", c10::getDtypeNames(dtype).first);
}

void check_dtype(const char* op, const at::Tensor& t, const char* name) {
  const auto dtype = t.scalar_type();
  TORCH_CHECK_TYPE(
      dtype == at::kDouble || dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
      "gelu_kernels::", op, ": ", name, " must be float64, float32, float16 or bfloat16, got ",
      dtype_name(dtype));
}

void check_input(const char* op, const at::Tensor& x) {
  check_dtype(op, x, "x");
  TORCH_CHECK_TYPE(x.layout() == at::kStrided || x.layout() == at::kJagged, "gelu_kernels::", op,
                   ": x must be a strided tensor, got layout ", x.layout());
}

void check_along(const char* op, const Argument& argument, const at::Tensor& x) {
  const auto& [name, t] = argument;
  if (t.dim() == 1) {
    TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op, ": x must have a last dimension for the ",
                      name, ", got a 0-d tensor");
    TORCH_CHECK_VALUE(t.sym_size(0) == x.sym_size(-1), "gelu_kernels::", op, ": ", name,
                      " must be as long as the last dimension of x, ", x.sym_size(-1),
                      ", got length ", t.sym_size(0));
  }
  TORCH_CHECK_TYPE(t.layout() == at::kStrided, "gelu_kernels::", op, ": ", name,
                   " must be a strided tensor, got layout ", t.layout());
  check_beside(op, argument, {"x", x});
}

void check_bias(const char* op, const Argument& argument, const at::Tensor& x) {
  const auto& [name, bias] = argument;
  TORCH_CHECK_VALUE(x.dim() > 0, "gelu_kernels::", op, ": x must have a last dimension for the ",
                    name, ", got a 0-d tensor");
  TORCH_CHECK_VALUE(bias.dim() == 1, "gelu_kernels::", op, ": ", name, " must be 1-d, got ",
                    bias.dim(), " dimensions");
  check_along(op, argument, x);
}

void check_like(const char* op, const Argument& argument, const Argument& other) {
  const auto& [name, t] = argument;
  const auto& [of, x] = other;
  TORCH_CHECK_VALUE(t.sym_sizes() == x.sym_sizes(), "gelu_kernels::", op, ": ", name,
                    " must have the shape of ", of, ", ", x.sym_sizes(), ", got ", t.sym_sizes());
  check_beside(op, argument, other);
}

void check_beside(const char* op, const Argument& argument, const Argument& other) {
  const auto& [name, t] = argument;
  const auto& [of, x] = other;
  TORCH_CHECK_TYPE(t.layout() == x.layout(), "gelu_kernels::", op, ": ", name,
                   " must have the layout of ", of, ", ", x.layout(), ", got ", t.layout());
  TORCH_CHECK_TYPE(t.scalar_type() == x.scalar_type(), "gelu_kernels::", op, ": ", name,
                   " must have the dtype of ", of, ", ", dtype_name(x.scalar_type()), ", got ",
                   dtype_name(t.scalar_type()));
  TORCH_CHECK_VALUE(t.device() == x.device(), "gelu_kernels::", op, ": ", name,
                    " must be on the device of ", of, ", ", x.device(), ", got ", t.device());
}

at::Tensor cast_under_autocast(at::Tensor t, const at::Tensor& x) {
  const auto device = x.device().type();
  const bool cast = t.scalar_type() != x.scalar_type() && t.is_floating_point() &&
                    at::autocast::is_autocast_available(device) &&
                    at::autocast::is_autocast_enabled(device);
  if (cast) return t.to(x.scalar_type());
  return t;
}

std::optional<at::Tensor> bias_for(const char* op, std::optional<at::Tensor> bias,
                                   const at::Tensor& x) {
  if (!bias) return bias;
  *bias = cast_under_autocast(*std::move(bias), x);
  const auto dtype = bias->scalar_type();
  TORCH_CHECK_TYPE(dtype == x.scalar_type() || !bias->is_floating_point(), "gelu_kernels::", op,
                   ": bias must have the dtype of x, ", dtype_name(x.scalar_type()), ", got ",
                   dtype_name(dtype), "; cast it, or call under torch.autocast, which does");
  check_bias(op, {"bias", *bias}, x);
  return bias;
}

}  // namespace gelu_kernels
