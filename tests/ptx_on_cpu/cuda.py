"""The CUDA operators without a GPU: the project's host code launches PTX that runs on the CPU.

A stub of CUDA's runtime (cuda_runtime/) has 128 devices, which share the CPU's memory.
"""

import ctypes
import re
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import NamedTuple

from tests import ptx_on_cpu
from tests.ptx_on_cpu import cuda_build
from tests.ptx_on_cpu.cuda_build import BUILT as BUILT

INVALID_CONFIGURATION = 9  # of CUDA's errors
DEVICES = 128

_architecture = cuda_build.WITH_LIBRARY
_running = Lock()
_raised: list[BaseException] = []  # in a launch, which can only fail


def _name(mangled: str) -> str:
    """Without the process id of nvcc, which ends the names of some anonymous namespaces."""
    length = re.search(r"(\d+)(?=_GLOBAL__N_)", mangled)
    if not length:
        return mangled
    end = length.end() + int(length[1])
    space = re.sub(r"(_cu_[0-9a-f]{8})_\d+$", r"\1", mangled[length.end() : end])
    return mangled[: length.start()] + space + mangled[end:]


@cache
def kernels(architecture: str = cuda_build.WITH_LIBRARY) -> dict[str, ptx_on_cpu.Kernel]:
    """All kernels, by names that all architectures share."""
    found = {}
    for text in cuda_build.ptx(architecture):
        some = {_name(name): kernel for name, kernel in ptx_on_cpu.load(text).items()}
        assert not some.keys() & found.keys()
        found |= some
    return found


def _version(architecture: str) -> int:
    return int(architecture.removeprefix("sm_"))


@ctypes.CFUNCTYPE(
    ctypes.c_bool,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_bool,
)
def _run(name: bytes, grid, block, shared: int, parameters: int, is_dependent: bool) -> bool:
    try:
        with _running:
            kernel = kernels(_architecture)[_name(name.decode())]
            kernel.launch(tuple(grid[:3]), tuple(block[:3]), shared, parameters, is_dependent)
        return True
    except ptx_on_cpu.Fault as fault:
        text = str(fault)
    except BaseException as error:  # it cannot pass through the operator
        _raised.append(error)
        text = traceback.format_exc()
    space = ctypes.c_char * 4096
    space.in_dll(library(), "ptx_on_cpu_fault").value = text.encode()[-4095:]
    return False


@cache
def library() -> ctypes.CDLL:
    loaded = cuda_build.library()
    for count in ("launches", "dependent_launches", "loaded", "devices_set"):
        getattr(loaded, f"ptx_on_cpu_{count}").restype = ctypes.c_int64
    loaded.ptx_on_cpu_run_kernels_by(_run)
    return loaded


@contextmanager
def enabled(architecture: str = cuda_build.WITH_LIBRARY) -> Iterator[None]:
    """Runs the operators' CUDA kernels on CPU tensors that are allocated from now on. Each
    architecture has a device of its own, as a device loads a kernel once."""
    global _architecture
    ptx_on_cpu.record_allocations()
    kernels(architecture)
    before, _architecture = _architecture, architecture
    library().ptx_on_cpu_enable()
    device = -cuda_build.ARCHITECTURES.index(architecture) % DEVICES
    try:
        with compiled_for(_version(architecture)), on_device(device):
            yield
    finally:
        library().ptx_on_cpu_disable()
        _architecture = before
        if _raised:
            raise _raised.pop()


@contextmanager
def compiled_for(version: int) -> Iterator[None]:
    """The kernels report PTX of this version, such as 90."""
    library().ptx_on_cpu_set_ptx_version(version)
    try:
        yield
    finally:
        library().ptx_on_cpu_set_ptx_version(_version(_architecture))


@contextmanager
def _set(function: str, value: int, afterwards: int) -> Iterator[None]:
    setter = getattr(library(), function)
    setter(value)
    try:
        yield
    finally:
        setter(afterwards)


def on_device(device: int) -> AbstractContextManager[None]:
    """All tensors are on this device."""
    return _set("ptx_on_cpu_put_tensors_on", device, 0)


def current_device(device: int) -> AbstractContextManager[None]:
    return _set("ptx_on_cpu_set_current_device", device, 0)


def capture() -> AbstractContextManager[None]:
    """No kernel can be loaded, as while a graph is captured."""
    return _set("ptx_on_cpu_capture", True, False)


def seeds_by_value() -> AbstractContextManager[None]:
    """Kernels are passed a seed's value, as if it were the CPU's, and not its address."""
    return _set("ptx_on_cpu_pass_seeds", True, False)


def fail_next(error: int = INVALID_CONFIGURATION) -> None:
    """Makes the next load or launch of a kernel fail."""
    library().ptx_on_cpu_fail_next(error)


class State(NamedTuple):
    """The stub's state and counts, for the whole process."""

    launches: int
    dependent_launches: int  # among these
    loaded: int  # kernels, on all devices together
    devices_set: int  # by cudaSetDevice
    current_device: int
    device_of_last: int  # launch
    last_error: int


def state() -> State:
    return State(*(getattr(library(), f"ptx_on_cpu_{name}")() for name in State._fields))


def launches() -> int:
    """How many kernels have been launched."""
    return library().ptx_on_cpu_launches()
