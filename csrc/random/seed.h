// The seed of a call's random bits, as its kernel takes it: drawn on the host, or by a kernel
// before.
#pragma once

#include "csrc/gates/arithmetic.h"

namespace gelu_kernels {

struct Seed {
  const int64_t* in_memory;  // of the device; null if `value` is the seed
  int64_t value;

  GELU_KERNELS_HD uint64_t get() const {
    return static_cast<uint64_t>(in_memory ? *in_memory : value);
  }
};

}  // namespace gelu_kernels
