// The operators of the SOI map: their schemas, the public ones in terms of the core ones, and the
// core ones as C++ functions.
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <torch/library.h>

#include <limits>

#include "csrc/ops/find_op.h"
#include "csrc/ops/jagged.h"
#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {
namespace {

at::Tensor draw_seed(const char* op, const at::Tensor& x,
                     const std::optional<at::Generator>& generator) {
  TORCH_CHECK_VALUE(!generator || generator->device() == x.device(), "gelu_kernels::", op,
                    ": generator must be on the device of x, ", x.device(), ", got ",
                    generator->device());
  constexpr int64_t end = std::numeric_limits<int64_t>::max();
  const auto options = at::TensorOptions(x.device()).dtype(at::kLong);
  // Both draw the same number. torch.compile gives randint() a generator of its own; vmap cannot
  // make a number for each example of random_().
  constexpr c10::DispatchKeySet functorch(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchVmapMode});
  if (c10::impl::tls_local_dispatch_key_set().included_.has_any(functorch)) {
    return at::randint(end, {}, generator, options);
  }
  return at::empty({}, options).random_(end, generator);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> soi_forward(const at::Tensor& x,
                                               const std::optional<at::Tensor>& bias,
                                               const at::Tensor& seed, std::string_view gate,
                                               int64_t offset, int64_t row_length,
                                               int64_t row_stride) {
  static const auto op = find_op<decltype(soi_forward)>("gelu_kernels::soi_forward");
  return op.call(x, bias, seed, gate, offset, row_length, row_stride);
}

at::Tensor soi_backward(const at::Tensor& dy, const at::Tensor& mask) {
  static const auto op = find_op<decltype(soi_backward)>("gelu_kernels::soi_backward");
  return op.call(dy, mask);
}

std::tuple<at::Tensor, at::Tensor> soi_backward_bias(const at::Tensor& dy, const at::Tensor& mask) {
  static const auto op = find_op<decltype(soi_backward_bias)>("gelu_kernels::soi_backward_bias");
  return op.call(dy, mask);
}

namespace {

at::Tensor apply_soi_map(const char* op, const at::Tensor& x, const std::optional<at::Tensor>& bias,
                         std::string_view gate, const std::optional<at::Generator>& generator) {
  check_input(op, x);
  if (x.layout() == at::kJagged) {
    return map_values(op, x, [&](const at::Tensor& values) {
      return apply_soi_map(op, values, bias, gate, generator);
    });
  }
  const auto same_dtype = bias_for(op, bias, x);
  gate_named(op, gate);  // before a seed is drawn
  return std::get<0>(
      soi_forward(x, same_dtype, draw_seed(op, x, generator), gate, /*offset=*/0, 0, 0));
}

}  // namespace

at::Tensor soi_map(const at::Tensor& x, std::string_view gate,
                   const std::optional<at::Generator>& generator) {
  return apply_soi_map("soi_map", x, std::nullopt, gate, generator);
}

at::Tensor fused_bias_soi_map(const at::Tensor& x, const at::Tensor& bias, std::string_view gate,
                              const std::optional<at::Generator>& generator) {
  return apply_soi_map("fused_bias_soi_map", x, bias, gate, generator);
}

TORCH_LIBRARY_FRAGMENT(gelu_kernels, m) {
  m.def("soi_map(Tensor x, *, str gate=\"normal\", Generator? generator=None) -> Tensor",
        {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  m.def(
      "fused_bias_soi_map(Tensor x, Tensor bias, *, str gate=\"normal\", "
      "Generator? generator=None) -> Tensor",
      {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  m.def(
      "soi_forward(Tensor x, Tensor? bias, Tensor seed, str gate, int offset=0, int row_length=0, "
      "int row_stride=0) -> (Tensor y, Tensor mask)",
      {at::Tag::pt2_compliant_tag});
  m.def("soi_backward(Tensor dy, Tensor mask) -> Tensor dx", {at::Tag::pt2_compliant_tag});
  m.def("soi_backward_bias(Tensor dy, Tensor mask) -> (Tensor dx, Tensor dbias)",
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) {
  m.impl("soi_map", soi_map);
  m.impl("fused_bias_soi_map", fused_bias_soi_map);
}

// Without it vmap would call a public operator for each element of a batch.
TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatchedDecomposition, m) {
  m.impl("soi_map", soi_map);
  m.impl("fused_bias_soi_map", fused_bias_soi_map);
}

}  // namespace gelu_kernels
