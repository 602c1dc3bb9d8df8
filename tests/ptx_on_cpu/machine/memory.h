#pragma once

#include <cstddef>
#include <cstdint>

namespace ptx {

// Of an access to a memory whose addresses begin at 0.
void check_bounds(const char* memory, size_t bytes, uint64_t at, size_t size, int lane);

}  // namespace ptx
