#include "csrc/ops/random.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "csrc/ops/compatibility.h"

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

namespace {

constexpr int64_t kSeeds = std::numeric_limits<int64_t>::max();  // from 0 on

// Whether only kernels, and nothing that traces, transforms or saves operators, will see a call
// with x.
bool reaches_kernels(const at::Tensor& x) {
  using c10::DispatchKey;
  static const c10::DispatchKeySet of_kernels =
      c10::DispatchKeySet(DispatchKey::CUDA) | c10::DispatchKeySet(DispatchKey::AutogradCUDA) |
      c10::DispatchKeySet{DispatchKey::ADInplaceOrView, DispatchKey::AutocastCUDA,
                          DispatchKey::BackendSelect};
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  return of_kernels.isSupersetOf((x.key_set() | local.included_) - local.excluded_);
}

// Whether torch's kernel is to draw the seed for x. It draws the first on each device: CUDA loads a
// kernel at its first use, which drivers before CUDA 12.3 refuse in the capture of a graph.
bool needs_kernel(const at::Tensor& x) {
  static std::atomic<bool> has_drawn[std::numeric_limits<c10::DeviceIndex>::max() + 1];
  if (!reaches_kernels(x) || at::Context::hasROCM()) return true;
  if (may_capture(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(x.device()))) return true;
  return !has_drawn[x.device().index()].exchange(true);
}

at::Tensor draw_on_host(const at::Tensor& x, const std::optional<at::Generator>& given) {
  const c10::DeviceGuard guard(x.device());  // whose stream the generator checks for a capture
  at::Generator generator = given ? *given : at::globalContext().defaultGenerator(x.device());
  const std::lock_guard<std::mutex> lock(generator.mutex());
  // Another generator with the same state: set_offset() of the own one makes cuDNN's recurrent
  // networks draw a seed of their dropout again (CUDAGeneratorImpl.cpp, no_reset_rnn_state_).
  const auto state = generator.unsafeGetGeneratorImpl()->graphsafe_get_state();
  const uint64_t offset = state->get_offset();
  const at::Tensor seed = at::detail::empty_cpu({}, at::kLong);
  *seed.mutable_data_ptr<int64_t>() = seed_of_state(state->current_seed(), offset);
  state->set_offset(offset + 4);
  return seed;
}

}  // namespace

// Philox4x32-10 of the first thread, which draws four words and takes two: curand_init and curand4
// of curand_kernel.h in distribution_elementwise_grid_stride_kernel and random_from_to_kernel of
// ATen/native/cuda/DistributionTemplates.h, the same in torch 2.11 to 2.14.
int64_t seed_of_state(uint64_t generator_seed, uint64_t offset) {
  at::Philox4_32 random(generator_seed, /*subsequence=*/0, offset / 4);
  const uint64_t high = random(), low = random();
  return static_cast<int64_t>((high << 32 | low) % kSeeds);
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
  if (x.is_cuda() && !needs_kernel(x)) return draw_on_host(x, generator);
  return random_seed(at::empty({}, at::TensorOptions(x.device()).dtype(at::kLong)), generator);
}

Tensor RandomSeed::compute(const Tensor& empty, const std::optional<at::Generator>& generator) {
  return at::empty_like(empty).random_(kSeeds, generator);
}

}  // namespace gelu_kernels
