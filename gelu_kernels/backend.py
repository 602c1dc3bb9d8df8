"""Chooses between the kernels in CUDA C++ and those in Triton for GPUs.

``GELU_KERNELS_BACKEND``, ``cuda`` or ``triton``, selects one; it is read when the package is
imported. By default all GPUs that the process sees use the same kernels, as they share a dispatch
key: CUDA C++ if it was built for all of them, or if Triton does not support all of them; otherwise
Triton. The first call on a GPU imports Triton.
"""

import os
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import torch

from gelu_kernels import _C
from gelu_kernels.operators.table import CORE, QUANTIZED
from gelu_kernels.operators.types import Operator

VARIABLE = "GELU_KERNELS_BACKEND"
META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)

Capability = tuple[int, int]

# Binaries for these do not run on other devices, nor the other way round (CUDA C++ Programming
# Guide, "Binary Compatibility"). CUDA 13 renamed 10.1 to 11.0.
TEGRA: set[Capability] = {(7, 2), (8, 7), (10, 1), (11, 0)}

# Compute capability of NVIDIA's devices; torch.compile has the same limit.
OLDEST_FOR_TRITON: Capability = (7, 0)

_library = torch.library.Library("gelu_kernels", "IMPL")  # kept for the life of the process


def _operator_of(op: Operator) -> Callable[..., object]:
    """An operator in Triton. The C++ kernel for meta tensors checks the arguments and allocates the
    results on the device of the arguments; the function in ``triton_kernels`` fills them."""
    family = import_module(f"gelu_kernels.triton_kernels.{op.family}.operators")
    write = getattr(family, op.name)
    allocate = op.overload._handle.redispatch_boxed  # OpOverload.redispatch takes 0.5 us more

    def operator(*arguments: object) -> object:
        results = allocate(META, *arguments)
        write(*(results if isinstance(results, tuple) else (results,)), *arguments)
        return results

    return operator


TRITON = {op.name: _operator_of(op) for op in (*CORE, *QUANTIZED)}


def runs_on(architecture: str, capability: Capability) -> bool:
    """Whether code for one of CMake's CUDA architectures runs on a device of this capability.

    A binary ("90-real") runs on devices of the same major and the same or a higher minor version,
    PTX ("90-virtual") on devices of the same or any higher version; "90" is both. Code for "90a"
    runs only on 9.0, code for "100f" only on devices of the same major version.
    """
    parts = re.fullmatch(r"(\d+)([af]?)(-real|-virtual)?", architecture)
    if parts is None:  # such as "native": if unsuitable, the launch fails
        return True
    number, specific, kind = parts.groups()
    own = divmod(int(number), 10)
    if own == capability or specific == "a":
        return own == capability
    is_ptx = kind != "-real" and not specific
    is_compatible = own[0] == capability[0] and not TEGRA & {own, capability}
    return own < capability and (is_ptx or is_compatible)


def _built() -> str:
    return _C.build_info()["cuda"]  # such as "13.0.88 for 80-real 120"


def _has_cuda() -> bool:
    return _built() != "not built"


def _asked_for() -> str | None:
    """The backend that the user asks for. Raises ImportError if it is not available."""
    wanted = os.environ.get(VARIABLE)
    if wanted not in (None, "", "cuda", "triton"):
        raise ImportError(f"{VARIABLE} must be 'cuda' or 'triton', got '{wanted}'")
    if wanted == "cuda" and not _has_cuda():
        raise ImportError(f"{VARIABLE} is 'cuda', but gelu_kernels was built without nvcc")
    if wanted == "triton" and find_spec("triton") is None:
        raise ImportError(f"{VARIABLE} is 'triton', but Triton is not installed")
    return wanted or None


def choose(architectures: list[str], capabilities: list[Capability], has_triton: bool) -> str:
    """The backend for all devices, given their compute capabilities."""
    are_built = all(any(runs_on(a, c) for a in architectures) for c in capabilities)
    triton_would_do = has_triton and all(c >= OLDEST_FOR_TRITON for c in capabilities)
    return "triton" if triton_would_do and not are_built else "cuda"


def for_nvidia() -> str:
    """The backend for the dispatch key CUDA, which AMD's GPUs share: "cuda" or "triton".

    Raises ImportError if the user asks for a backend that is not available.
    """
    if wanted := _asked_for():
        return wanted
    if not _has_cuda() or torch.version.hip:
        return "triton"
    devices = range(torch.cuda.device_count())
    return choose(
        _built().partition(" for ")[2].split(),
        [torch.cuda.get_device_capability(i) for i in devices],
        find_spec("triton") is not None,
    )


def _register_triton(*keys: str) -> None:
    with warnings.catch_warnings():
        # torch warns when a kernel replaces another, here one in CUDA C++.
        warnings.simplefilter("ignore")
        for key in keys:
            for name, kernel in TRITON.items():
                _library.impl(name, kernel, key)


def _register_triton_if_chosen() -> None:
    if for_nvidia() == "triton":
        _register_triton("CUDA")


def register() -> None:
    """Registers the Triton kernels of the core operators for GPUs without other kernels."""
    _register_triton("XPU")
    wanted = _asked_for()
    if wanted == "triton" or not _has_cuda():
        _register_triton("CUDA")
    elif wanted is None:
        # Deferred until CUDA is initialised, like torch's own checks of the devices. Querying them
        # now would initialise it, and the process could no longer fork.
        torch.cuda._lazy_call(_register_triton_if_chosen)
