// Functions for Python's ctypes.
#pragma once

#define CUDA_ON_CPU_EXPORT extern "C" __attribute__((visibility("default")))
