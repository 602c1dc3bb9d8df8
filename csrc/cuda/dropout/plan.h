// Octets of a thread of dropout's kernels, and blocks of a processor.
#pragma once

#include "csrc/cuda/octet_rows.h"
#include "csrc/cuda/packed.h"

namespace gelu_kernels::cuda {

template <class Precision, int inputs>
struct DropoutPlan {
  static constexpr int size = sizeof(StorageOf<Precision>);
  static constexpr int rows = dropout_rows(inputs, size);
  static constexpr int blocks =
      dropout_blocks_per_processor(inputs, size, kPacked<typename Precision::Real> > 1);
};

}  // namespace gelu_kernels::cuda
