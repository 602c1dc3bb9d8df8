"""Compiled Triton kernels started on a machine without a GPU, and executed on the CPU if wanted.

Triton's own launcher starts them over a stub of NVIDIA's driver library, which records what it was
given. Tensors are the CPU's. The image of a module is the PTX that Triton makes, which NVIDIA's
driver takes in the place of a cubin too. Triton must not have been imported for its interpreter.
"""

import atexit
import ctypes
import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch

from gelu_kernels.triton_kernels import launch
from tests import ROOT, ptx_on_cpu
from tests.triton_operators import registered

HERE = Path(__file__).parent
BUILD = ROOT / "build" / "stub_driver"
CACHE = BUILD / "cache"

# Of CUDA's errors.
INVALID_HANDLE = 400
LAUNCH_FAILED = 719

# A target of Triton's that the kernels have no instructions for.
PORTABLE = "portable"


class Launch(NamedTuple):
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    device: int
    values: dict[str, Any]  # of all parameters of the Triton function, those compiled in as well
    addresses: dict[str, int]  # the values that are tensors
    divisors: dict[str, int]  # of values, that the kernel was promised
    is_dependent: bool  # may start while the kernel ahead runs


class _LaunchConfig(ctypes.Structure):
    """The beginning of CUlaunchConfig."""

    _fields_ = [("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p)]


_OnLaunch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(_LaunchConfig),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int,
)


@cache
def _libcuda() -> ctypes.CDLL:
    import triton.backends.nvidia as nvidia

    BUILD.mkdir(parents=True, exist_ok=True)
    include = Path(nvidia.__path__[0]) / "include"
    mine = BUILD / f"{os.getpid()}.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wl,-soname,libcuda.so.1", f"-I{include}"]
    subprocess.run(["gcc", *flags, "-o", mine, HERE / "libcuda.c"], check=True)
    mine.replace(BUILD / "libcuda.so.1")  # at once: another process may be loading the last one
    os.environ["TRITON_LIBCUDA_PATH"] = str(BUILD)
    os.environ.setdefault("TRITON_CACHE_DIR", str(CACHE))
    return ctypes.CDLL(str(BUILD / "libcuda.so.1"), ctypes.RTLD_GLOBAL)


class Function(NamedTuple):
    """A function of a loaded module."""

    source: Any  # of Triton's
    kernel: ptx_on_cpu.Kernel


class State:
    """The state of the devices, which a test sets, and the questions that they were asked."""

    def __init__(self, arch: int, portable: bool) -> None:
        self.arch = arch
        self.backend = PORTABLE if portable else "cuda"
        self.starts: dict[Hashable, launch.Start] = {}  # of kernels, compiled once for the process
        self.loading: Any = None
        self.loaded: dict[int, Function] = {}
        self.reset(execute=False)
        self.triton = _backend(self)
        self.driver: Any = None  # Triton's, which makes it when it first needs it

    def reset(self, execute: bool) -> None:
        self.execute = execute
        self.device = 0
        self.stream = 0
        self.error = 0  # of the next launch
        self.launches: list[Launch] = []
        self.asked: list[str] = []

    def current_device(self) -> int:
        self.asked.append("device")
        return self.device

    def current_stream(self, device: int) -> int:
        self.asked.append(f"stream of {device}")
        return self.stream

    @contextmanager
    def guard(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, device.index or 0
        try:
            yield
        finally:
            self.device = before

    def on_launch(self, config: Any, handle: int, parameters: Any, is_dependent: int) -> int:
        """What cuLaunchKernelEx answers. An exception would be lost in the library."""
        error, self.error = self.error, 0
        if error:
            return error
        if handle not in self.loaded:
            return INVALID_HANDLE
        try:
            self.start(config[0], self.loaded[handle], parameters, bool(is_dependent))
        except BaseException as error:
            is_fault = isinstance(error, ptx_on_cpu.Fault)
            text = str(error) if is_fault else "".join(traceback.format_exception(error))
            _libcuda().stub_failure(text.encode()[-900:])
            return LAUNCH_FAILED
        return 0

    def start(
        self, config: _LaunchConfig, function: Function, parameters: Any, is_dependent: bool
    ) -> None:
        source, kernel = function
        names = list(source.signature)
        values = {names[i]: value for (i,), value in source.constants.items()}
        passed = [name for name, type in source.signature.items() if type != "constexpr"]
        scratch = [0, 0]
        numbers = [
            int.from_bytes(ctypes.string_at(parameters[i], size), "little", signed=True)
            for i, size in enumerate(kernel.parameters)
        ]
        assert numbers[len(passed) :] == scratch
        values.update(zip(passed, numbers, strict=False))
        tensors = [name for name in passed if source.signature[name].startswith("*")]
        divisors = {names[i]: value for (i,), ((_, value),) in source.attrs.items()}
        *shape, shared = config.shape
        grid, block = tuple(shape[:3]), tuple(shape[3:])
        self.launches.append(
            Launch(
                source.name,
                grid,
                block,
                shared,
                config.stream or 0,
                self.device,
                values,
                {name: values[name] for name in tensors},
                divisors,
                is_dependent,
            )
        )
        if self.execute:
            address = ctypes.cast(parameters, ctypes.c_void_p).value
            kernel.launch(grid, block, shared, address, is_dependent)


def _backend(state: State) -> Any:
    """What Triton makes its compiler and its driver of."""
    from triton.backends import Backend
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher

    class Compiler(CUDABackend):
        @staticmethod
        def supports_target(target: GPUTarget) -> bool:
            return target.backend == state.backend

        def hash(self) -> str:
            """A part of the key of Triton's cache, where there may be a cubin too."""
            return f"PTX for {self.target}"

        def make_cubin(self, src: str, *_: Any) -> bytes:
            return src.encode() + b"\0"

    class Driver(CudaDriver):
        def __init__(self) -> None:
            super().__init__()  # which sets functions, of torch.cuda
            self.get_current_device = state.current_device
            self.get_current_stream = state.current_stream
            load = self.utils.load_binary
            unload = getattr(self.utils, "unload_module", None)  # Triton 3.6 unloads nothing

            def load_binary(name: str, ptx: bytes, *options: int) -> tuple[int, ...]:
                result = load(name, ptx, *options)
                kernel = ptx_on_cpu.load(ptx.rstrip(b"\0").decode())[name]
                state.loaded[result[1]] = Function(state.loading, kernel)
                return result

            def unload_module(module: int) -> None:
                unload(module)
                del state.loaded[module]  # its function has the same handle

            def launcher(source: Any, metadata: Any) -> CudaLauncher:
                state.loading = source  # its binary is the next
                return CudaLauncher(source, metadata)

            changed = {"load_binary": load_binary, "unload_module": unload_module}
            self.utils = SimpleNamespace(**vars(self.utils) | changed)
            self.launcher_cls = launcher

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget(state.backend, state.arch, 32)

    return Backend(Compiler, Driver)


@cache
def _state(arch: int, portable: bool) -> State:
    _libcuda()
    state = State(arch, portable)

    @atexit.register
    def unload() -> None:
        """By the driver that loaded them, as Triton unloads a kernel that nothing refers to."""
        with _active(state):
            state.starts.clear()
            gc.collect()

    return state


@contextmanager
def _active(state: State) -> Iterator[None]:
    from triton.backends import backends
    from triton.runtime import driver

    with (
        mock.patch.dict(backends, nvidia=state.triton),
        mock.patch.multiple(driver, _default=state.driver, _active=state.driver),
        mock.patch.object(launch, "_starts", state.starts),
    ):
        yield
        state.driver = driver._active


@contextmanager
def enabled(
    arch: int = 90, *, record: bool = True, execute: bool = False, portable: bool = False
) -> Iterator[State]:
    """Devices of an architecture. ``portable`` kernels have only what all of Triton's targets have,
    AMD's and Intel's GPUs among them."""
    if execute:
        ptx_on_cpu.record_allocations()
    state = _state(arch, portable)
    state.reset(execute)
    devices, device_module = SimpleNamespace(device=state.guard), torch.get_device_module

    def get_device_module(device: torch.device | str) -> object:
        return devices if torch.device(device).type == "cpu" else device_module(device)

    callback = _OnLaunch(state.on_launch if record or execute else 0)
    _libcuda().stub_on_launch(callback)
    with (
        _active(state),
        mock.patch.object(torch, "get_device_module", get_device_module),
        registered("CPU"),
    ):
        yield state
    _libcuda().stub_on_launch(None)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TRITON_CACHE_DIR": str(CACHE),
        "TRITON_INTERPRET": "0",
        **variables,
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)
