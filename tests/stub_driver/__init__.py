"""Compiled Triton kernels started on a machine without a GPU, but not run.

Triton's own launcher starts them over a stub of NVIDIA's driver library, which records what it was
given. Tensors are the CPU's. Triton must not have been imported for its interpreter.
"""

import ctypes
import gc
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from triton_interpreter import registered

from gelu_kernels.triton_kernels import launch

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "stub_driver"
LAUNCH_FAILED = 719  # of CUDA's errors


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


class _LaunchConfig(ctypes.Structure):
    """The beginning of CUlaunchConfig."""

    _fields_ = [("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p)]


_OnLaunch = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_LaunchConfig), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
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
    return ctypes.CDLL(str(BUILD / "libcuda.so.1"), ctypes.RTLD_GLOBAL)


def _parameter_sizes(cubin: bytes) -> list[int]:
    """Of the only kernel, from the entries EIATTR_KPARAM_INFO."""
    entries = re.findall(rb"\x04\x17\x0c\0\0{4}(..)..(....)", cubin, re.DOTALL)
    sizes = {struct.unpack("<H", i)[0]: struct.unpack("<I", size)[0] >> 18 for i, size in entries}
    return [sizes[i] for i in range(len(sizes))]


class State:
    """The state of the devices, which a test sets, and the questions that they were asked."""

    def __init__(self, arch: int) -> None:
        self.arch = arch
        self.device = 0
        self.stream = 0
        self.error = 0  # of the next launch
        self.launches: list[Launch] = []
        self.asked: list[str] = []
        self.loading: Any = None
        self.loaded: dict[int, tuple[Any, list[int]]] = {}  # functions: their source, sizes

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

    def on_launch(self, config: Any, function: int, parameters: Any) -> int:
        error, self.error = self.error, 0
        if error:
            return error
        source, sizes = self.loaded[function]
        names = list(source.signature)
        values = {names[i]: value for (i,), value in source.constants.items()}
        passed = [name for name, type in source.signature.items() if type != "constexpr"]
        scratch = [0, 0]
        numbers = [
            int.from_bytes(ctypes.string_at(parameters[i], size), "little", signed=True)
            for i, size in enumerate(sizes)
        ]
        assert numbers[len(passed) :] == scratch
        values.update(zip(passed, numbers, strict=False))
        tensors = [name for name in passed if source.signature[name].startswith("*")]
        divisors = {names[i]: value for (i,), ((_, value),) in source.attrs.items()}
        *shape, shared = config[0].shape
        self.launches.append(
            Launch(
                source.name,
                tuple(shape[:3]),
                tuple(shape[3:]),
                shared,
                config[0].stream or 0,
                self.device,
                values,
                {name: values[name] for name in tensors},
                divisors,
            )
        )
        return 0


def _driver(state: State) -> type:
    """The class that Triton makes its driver of."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher

    class Driver(CudaDriver):
        def __init__(self) -> None:
            super().__init__()  # which sets functions, of torch.cuda
            self.get_current_device = state.current_device
            self.get_current_stream = state.current_stream
            load = self.utils.load_binary

            def load_binary(name: str, cubin: bytes, *options: int) -> tuple[int, ...]:
                result = load(name, cubin, *options)
                state.loaded[result[1]] = state.loading, _parameter_sizes(cubin)
                return result

            def launcher(source: Any, metadata: Any) -> CudaLauncher:
                state.loading = source  # its binary is the next
                return CudaLauncher(source, metadata)

            self.utils = SimpleNamespace(**vars(self.utils) | {"load_binary": load_binary})
            self.launcher_cls = launcher

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", state.arch, 32)

    return Driver


@contextmanager
def enabled(arch: int = 90, record: bool = True) -> Iterator[State]:
    """Devices of an architecture. Nothing is compiled yet for them."""
    from triton.backends import Backend, backends
    from triton.runtime import driver

    state = State(arch)
    stub = Backend(backends["nvidia"].compiler, _driver(state))
    devices = SimpleNamespace(device=state.guard)
    callback = _OnLaunch(state.on_launch if record else 0)
    _libcuda().stub_on_launch(callback)
    with (
        mock.patch.dict(backends, nvidia=stub),
        mock.patch.multiple(driver, _default=None, _active=None),
        mock.patch.object(torch, "get_device_module", lambda device: devices),
        mock.patch.dict(launch._starts, clear=True),
        registered("CPU"),
    ):
        yield state
        launch._starts.clear()
        gc.collect()  # kernels are unloaded by the driver that loaded them
    _libcuda().stub_on_launch(None)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python in a process where Triton compiles."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        "TRITON_CACHE_DIR": str(BUILD / "cache"),
        **variables,
    }
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)
