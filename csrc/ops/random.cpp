#include "csrc/ops/random.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <limits>

namespace gelu_kernels {

void check_draw(const char* op, const at::Tensor& x, const at::Tensor& seed,
                const GlobalIndex& index) {
  TORCH_CHECK_VALUE(seed.dim() == 0, "gelu_kernels::", op, ": seed must be 0-d, got ", seed.dim(),
                    " dimensions");
  TORCH_CHECK_TYPE(seed.scalar_type() == at::kLong, "gelu_kernels::", op,
                   ": seed must be int64, got ", dtype_name(seed.scalar_type()));
  TORCH_CHECK_VALUE(seed.is_cpu() || seed.device() == x.device(), "gelu_kernels::", op,
                    ": seed must be on the CPU or on the device of x, ", x.device(), ", got ",
                    seed.device());
  const auto check_index = [op](const char* name, int64_t value) {
    TORCH_CHECK_VALUE(value >= 0, "gelu_kernels::", op, ": ", name, " must not be negative, got ",
                      value);
  };
  check_index("offset", index.offset);
  check_index("row_length", index.row_length);
  check_index("row_stride", index.row_stride);
}

void check_mask(const char* op, const at::Tensor& mask, const Argument& argument) {
  const auto& [of, t] = argument;
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kByte, "gelu_kernels::", op,
                   ": mask must be uint8, got ", dtype_name(mask.scalar_type()));
  TORCH_CHECK_VALUE(mask.dim() == 1 && mask.sym_size(0) == mask_bytes(t), "gelu_kernels::", op,
                    ": mask must be a vector of a bit for each element of ", of, ", ",
                    mask_bytes(t), " bytes, got shape ", mask.sym_sizes());
  TORCH_CHECK_VALUE(mask.device() == t.device(), "gelu_kernels::", op,
                    ": mask must be on the device of ", of, ", ", t.device(), ", got ",
                    mask.device());
}

void check_p(const char* op, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1, "gelu_kernels::", op, ": p must be from 0 to 1, got ", p);
}

double factor_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

std::optional<Dropout> dropout_of(double p) {
  const double threshold = std::nearbyint(p * 0x1p32);
  if (threshold == 0x1p32) return std::nullopt;
  return Dropout{static_cast<uint32_t>(threshold), factor_of(p)};
}

at::Tensor draw_seed(const char* op, const at::Tensor& x,
                     const std::optional<at::Generator>& generator) {
  if (generator) {
    // torch.Generator("cuda") has no index; as in torch, it serves tensors on any GPU.
    const at::Device device = generator->device();
    TORCH_CHECK_VALUE(device == x.device() || device == at::Device(x.device().type()),
                      "gelu_kernels::", op, ": generator must be on the device of x, ", x.device(),
                      ", got ", device);
  }
  return random_seed(at::empty({}, at::TensorOptions(x.device()).dtype(at::kLong)), generator);
}

Tensor RandomSeed::compute(const Tensor& empty, const std::optional<at::Generator>& generator) {
  return at::empty_like(empty).random_(std::numeric_limits<int64_t>::max(), generator);
}

}  // namespace gelu_kernels
