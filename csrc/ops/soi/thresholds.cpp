// The probabilities of the SOI map as counts of random words, for tests.
#include "csrc/cpu/soi_loops.h"
#include "csrc/ops/layout.h"
#include "csrc/ops/soi/soi.h"

namespace gelu_kernels {

Tensor soi_thresholds(const Tensor& x, std::string_view gate) {
  const Tensor numbers = x.to(at::kFloat).contiguous();
  const Tensor result = at::empty(x.sizes(), x.options().dtype(at::kInt));
  const auto& loops = cpu::soi_loops(gate_named("soi_thresholds", gate), Dtype::float32, x.numel());
  loops.count_in_tail(reinterpret_cast<uint32_t*>(data_of(result)), numbers.const_data_ptr<float>(),
                      x.numel());
  return result.to(at::kLong).bitwise_and(0xffffffffll);
}

}  // namespace gelu_kernels
