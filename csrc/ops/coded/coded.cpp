// The checks of the operators whose derivative is coded, and a public operator composed of them.
#include "csrc/ops/coded/coded.h"

#include <ATen/core/grad_mode.h>

#include "csrc/ops/dropout/dropout.h"
#include "csrc/ops/jagged.h"

namespace gelu_kernels {
namespace {

void check_numbers(const char* op, int64_t bits, double p) {
  TORCH_CHECK_VALUE(bits == 8 || bits == 4, "gelu_kernels::", op, ": bits must be 8 or 4, got ",
                    bits);
  check_p(op, p);
}

}  // namespace

Gate check_coded_forward(const char* op, const Tensor& x, const OptionalTensor& bias,
                         const OptionalTensor& seed, std::string_view gate, int64_t bits, double p,
                         bool dither, const GlobalIndex& index) {
  const Gate id = check_gate(op, x, bias, gate);
  check_numbers(op, bits, p);
  const bool is_random = p > 0 || dither;
  TORCH_CHECK_VALUE(is_random || !seed, "gelu_kernels::", op,
                    ": seed must be None without p and dither, got a tensor");
  TORCH_CHECK_VALUE(!is_random || seed, "gelu_kernels::", op,
                    ": seed must be an int64 scalar for p or dither, got None");
  if (seed) check_draw(op, x, *seed, index);
  return id;
}

void check_coded_backward(const char* op, const Tensor& dy, const Tensor& code, int64_t bits,
                          double p, bool has_bias) {
  check_dtype(op, dy, "dy");
  check_numbers(op, bits, p);
  TORCH_CHECK_VALUE(!has_bias || dy.dim() > 0, "gelu_kernels::", op,
                    ": dy must have a last dimension for the bias, got a 0-d tensor");
  TORCH_CHECK_TYPE(code.scalar_type() == at::kByte, "gelu_kernels::", op,
                   ": code must be uint8, got ", dtype_name(code.scalar_type()));
  const c10::SymInt bytes = code_bytes(dy.sym_numel(), bits);
  TORCH_CHECK_VALUE(code.dim() == 1 && code.sym_size(0) == bytes, "gelu_kernels::", op,
                    ": code must be a vector of ", bits, " bits for each element of dy, ", bytes,
                    " bytes, got shape ", code.sym_sizes());
  TORCH_CHECK_VALUE(code.device() == dy.device(), "gelu_kernels::", op,
                    ": code must be on the device of dy, ", dy.device(), ", got ", code.device());
}

void check_save(const char* op, std::optional<std::string_view> save, bool dither) {
  TORCH_CHECK_VALUE(!save || *save == "8bit" || *save == "4bit", "gelu_kernels::", op,
                    ": save must be None, '8bit' or '4bit', got '", *save, "'");
  TORCH_CHECK_VALUE(save || !dither, "gelu_kernels::", op,
                    ": dither must be False without save, got True");
}

namespace {

// In the batch of a vmap as well, which knows nothing of it.
bool wants_gradient(const OptionalTensor& t) {
  if (!t || !at::GradMode::is_enabled()) return false;
  const auto* batched = at::functorch::maybeGetBatchedImpl(*t);
  return batched ? wants_gradient(batched->value()) : t->requires_grad();
}

}  // namespace

Tensor apply_coded_gate(const char* op, const Tensor& x, OptionalTensor bias, std::string_view gate,
                        std::string_view save, const OptionalTensor& seed, double p, bool dither) {
  check_input(op, x);
  if (x.layout() == at::kJagged) {
    return map_values(op, x, [&](const Tensor& values) {
      return apply_coded_gate(op, values, bias, gate, save, seed, p, dither);
    });
  }
  bias = bias_for(op, std::move(bias), x);
  if (seed) check_draw(op, x, *seed, {});
  if (wants_gradient(x) || wants_gradient(bias)) {
    return std::get<0>(coded_forward(x, bias, seed, gate, save == "8bit" ? 8 : 4, p, dither,
                                     /*offset=*/0, /*row_length=*/0, /*row_stride=*/0));
  }
  if (p == 0) return gate_forward(x, bias, gate);
  return std::get<0>(gate_dropout_forward(x, bias, *seed, gate, p, /*offset=*/0, /*row_length=*/0,
                                          /*row_stride=*/0));
}

Tensor DrawSeed::compose(const Tensor& x) {
  static const std::optional<at::Generator> none;  // g++ 12 warns of a temporary one's destructor
  return draw_seed(name(), x, none);
}

}  // namespace gelu_kernels
