// The library of operators: schemas, and the kernels of every dispatch key but CUDA's.
#include <torch/library.h>

#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/meta.h"
#include "csrc/ops/operators.h"

namespace gelu_kernels {
namespace {

// Calls visit(schema, function, is_random) for each public operator.
template <class Visit>
void for_each_public_operator(Visit visit) {
  visit("fused_gelu(Tensor x, *, str approximate=\"none\") -> Tensor", fused_gelu, false);
  visit("fused_bias_gelu(Tensor x, Tensor bias, *, str approximate=\"none\") -> Tensor",
        fused_bias_gelu, false);
  visit("fused_gate(Tensor x, Tensor? bias=None, *, str gate) -> Tensor", fused_gate, false);
  visit("fused_glu(Tensor x, Tensor? up=None, *, str gate=\"normal\") -> Tensor", fused_glu, false);
  visit("soi_map(Tensor x, *, str gate=\"normal\", Generator? generator=None) -> Tensor", soi_map,
        true);
  visit(
      "fused_bias_soi_map(Tensor x, Tensor bias, *, str gate=\"normal\", "
      "Generator? generator=None) -> Tensor",
      fused_bias_soi_map, true);
}

}  // namespace

TORCH_LIBRARY(gelu_kernels, m) {
  const std::vector<at::Tag> of_any{at::Tag::pt2_compliant_tag};
  const std::vector<at::Tag> of_random{at::Tag::pt2_compliant_tag,
                                       at::Tag::nondeterministic_seeded};
  for_each_public_operator([&](const char* schema, auto, bool is_random) {
    m.def(schema, is_random ? of_random : of_any);
  });
  CoreOperators::define(m);
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) {
  for_each_public_operator(
      [&](const char* schema, auto function, bool) { m.impl(name_in(schema).c_str(), function); });
}

// Without it vmap would call a public operator for each element of a batch, with no regard to
// `randomness`.
TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatchedDecomposition, m) {
  for_each_public_operator(
      [&](const char* schema, auto function, bool) { m.impl(name_in(schema).c_str(), function); });
}

TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatched, m) { CoreOperators::batch(m); }

TORCH_LIBRARY_IMPL(gelu_kernels, Autograd, m) { CoreOperators::differentiate(m); }
TORCH_LIBRARY_IMPL(gelu_kernels, CPU, m) { CoreOperators::compute<Cpu>(m); }
TORCH_LIBRARY_IMPL(gelu_kernels, Meta, m) { CoreOperators::compute<Meta>(m); }

}  // namespace gelu_kernels
