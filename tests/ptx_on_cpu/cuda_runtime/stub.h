// What the parts of the stub share, those that do not include CUDA's headers too.
#pragma once

#include <cstdint>

// Functions and variables for Python's ctypes.
#define PTX_ON_CPU_EXPORT extern "C" __attribute__((visibility("default")))

// The stream of every caller. A null pointer, the default stream, would not show that a launch lost
// it.
inline void* callers_stream() { return reinterpret_cast<void*>(uintptr_t{1}); }
