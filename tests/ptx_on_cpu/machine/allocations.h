// The memory of torch's tensors on the CPU, as its allocator gave it.
#pragma once

#include <cstdint>
#include <vector>

namespace ptx {

struct Region {
  uintptr_t begin = 0, end = 0;
};

// Where the allocation is that holds the address; empty if there is none.
Region allocation_of(uintptr_t address);

}  // namespace ptx
