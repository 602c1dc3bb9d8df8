"""Which kernels serve a GPU: those in CUDA C++, where they were built, or those in Triton.

``GELU_KERNELS_BACKEND``, ``cuda`` or ``triton``, asks for one where there are both; it is read when
the package is imported. Triton itself is imported by the first call on a GPU.
"""

import os
from importlib.util import find_spec

import torch

from gelu_kernels import _C
from gelu_kernels.triton_kernels import glu_operators, operators, soi_operators

VARIABLE = "GELU_KERNELS_BACKEND"
TRITON = {
    "gate_forward": operators.gate_forward,
    "gate_backward": operators.gate_backward,
    "gate_backward_bias": operators.gate_backward_bias,
    "gate_double_backward": operators.gate_double_backward,
    "glu_forward": glu_operators.glu_forward,
    "glu_backward": glu_operators.glu_backward,
    "glu_packed_forward": glu_operators.glu_packed_forward,
    "glu_packed_backward": glu_operators.glu_packed_backward,
    "soi_forward": soi_operators.soi_forward,
    "soi_backward": soi_operators.soi_backward,
    "soi_backward_bias": soi_operators.soi_backward_bias,
}

_library = torch.library.Library("gelu_kernels", "IMPL")  # for as long as the process


def _has_cuda() -> bool:
    return _C.build_info()["cuda"] != "not built"


def for_nvidia() -> str:
    """The backend of the dispatch key CUDA, which AMD's GPUs have too: "cuda" or "triton".

    Raises ImportError if the one that was asked for is not there.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted not in (None, "", "cuda", "triton"):
        raise ImportError(f"{VARIABLE} must be 'cuda' or 'triton', got '{wanted}'")
    if wanted == "cuda" and not _has_cuda():
        raise ImportError(f"{VARIABLE} is 'cuda', but gelu_kernels was built without nvcc")
    if wanted == "triton" and find_spec("triton") is None:
        raise ImportError(f"{VARIABLE} is 'triton', but Triton is not installed")
    return wanted or ("cuda" if _has_cuda() else "triton")


def register() -> None:
    """Gives the core operators their Triton kernels, for the GPUs that have no others."""
    keys = ["XPU"] if for_nvidia() == "cuda" else ["CUDA", "XPU"]
    for key in keys:
        for name, kernel in TRITON.items():
            _library.impl(name, kernel, key)
