// Functions and variables for Python's ctypes.
#pragma once

#define PTX_ON_CPU_EXPORT extern "C" __attribute__((visibility("default")))
