// How dropout's octets are distributed over a GPU.
#pragma once

#include "csrc/cuda/tuning.h"
#include "csrc/gates/storage.h"

namespace gelu_kernels::cuda {

template <class Precision, int inputs>
struct DropoutPlan {
  static constexpr int size = sizeof(StorageOf<Precision>);
  static constexpr int octets = dropout_octets(inputs, size);  // of a thread
  static constexpr int blocks = dropout_blocks_per_processor(size);
  static constexpr int64_t elements = int64_t{kThreads} * octets * 8;  // of a block
};

}  // namespace gelu_kernels::cuda
