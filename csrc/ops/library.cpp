// The library of operators: schemas, and the kernels of every dispatch key but CUDA's.
#include <torch/library.h>

#include "csrc/ops/device/cpu.h"
#include "csrc/ops/device/meta.h"
#include "csrc/ops/operators.h"

namespace gelu_kernels {

TORCH_LIBRARY(gelu_kernels, m) {
  PublicOperators::define(m);
  CoreOperators::define(m);
  ComposedOperators::define(m);
  Registry<RandomSeed>::define(m);
}

TORCH_LIBRARY_IMPL(gelu_kernels, CompositeImplicitAutograd, m) { PublicOperators::compose(m); }
TORCH_LIBRARY_IMPL(gelu_kernels, CompositeExplicitAutograd, m) {
  ComposedOperators::compose(m);
  m.impl(RandomSeed::name(), RandomSeed::compute);
}

// Without it vmap would call a public operator for each example, ignoring `randomness`.
TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatchedDecomposition, m) { PublicOperators::compose(m); }

TORCH_LIBRARY_IMPL(gelu_kernels, FuncTorchBatched, m) {
  CoreOperators::batch(m);
  ComposedOperators::batch(m);
}
TORCH_LIBRARY_IMPL(gelu_kernels, Autograd, m) {
  CoreOperators::differentiate(m);
  ComposedOperators::differentiate(m);
  m.impl(RandomSeed::name(), torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(gelu_kernels, CPU, m) { CoreOperators::compute<Cpu>(m); }
TORCH_LIBRARY_IMPL(gelu_kernels, Meta, m) { CoreOperators::compute<Meta>(m); }

}  // namespace gelu_kernels
