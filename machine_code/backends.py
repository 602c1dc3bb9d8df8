"""The compilers whose machine code is looked at, each with ``missing_tools`` and ``kernels``."""

from types import ModuleType

from machine_code import cuda_code, triton_code

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
BACKENDS: dict[str, ModuleType] = {"cuda": cuda_code, "triton": triton_code}
