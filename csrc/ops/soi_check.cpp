#include <c10/util/Exception.h>
#include <torch/library.h>

#include "csrc/ops/soi_ops.h"

namespace gelu_kernels {

c10::SymInt mask_bytes(const at::Tensor& x) { return (x.sym_numel() + 7) / 8; }

Gate check_soi_forward(const at::Tensor& x, const std::optional<at::Tensor>& bias,
                       const at::Tensor& seed, std::string_view gate, const GlobalIndex& index) {
  const Gate id = check_gate("soi_forward", x, bias, gate);
  TORCH_CHECK_VALUE(seed.dim() == 0, "gelu_kernels::soi_forward: seed must be 0-d, got ",
                    seed.dim(), " dimensions");
  TORCH_CHECK_TYPE(seed.scalar_type() == at::kLong,
                   "gelu_kernels::soi_forward: seed must be int64, got ", seed.scalar_type());
  TORCH_CHECK_VALUE(seed.device() == x.device(),
                    "gelu_kernels::soi_forward: seed must be on the device of x, ", x.device(),
                    ", got ", seed.device());
  const auto check_index = [](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value >= 0, "gelu_kernels::soi_forward: ", name,
                      " must not be negative, got ", value);
  };
  check_index("offset", index.offset);
  check_index("row_length", index.row_length);
  check_index("row_stride", index.row_stride);
  return id;
}

void check_soi_backward(const char* op, const at::Tensor& dy, const at::Tensor& mask,
                        bool has_bias) {
  const auto dtype = dy.scalar_type();
  TORCH_CHECK_TYPE(
      dtype == at::kDouble || dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
      "gelu_kernels::", op, ": dy must be float64, float32, float16 or bfloat16, got ", dtype);
  TORCH_CHECK_VALUE(!has_bias || dy.dim() > 0, "gelu_kernels::", op,
                    ": dy must have a last dimension for the bias, got a 0-d tensor");
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kByte, "gelu_kernels::", op,
                   ": mask must be uint8, got ", mask.scalar_type());
  TORCH_CHECK_VALUE(mask.dim() == 1 && mask.sym_size(0) == mask_bytes(dy), "gelu_kernels::", op,
                    ": mask must be a vector of a bit for each element of dy, ", mask_bytes(dy),
                    " bytes, got shape ", mask.sym_sizes());
  TORCH_CHECK_VALUE(mask.device() == dy.device(), "gelu_kernels::", op,
                    ": mask must be on the device of dy, ", dy.device(), ", got ", mask.device());
}

}  // namespace gelu_kernels
