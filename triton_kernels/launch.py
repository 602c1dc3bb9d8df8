"""Compiles kernels, each once for a device, and starts them by Triton's launcher directly.

``JITFunction.run`` inspects the type and the value of every argument in every call. Here the caller
names what to compile for, by a key that is quick to build.
"""

import importlib
import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.tuning import THREADS

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import KernelInterface

Grid = tuple[int, int, int]

# The type of an argument, such as "*bf16" or "i64" (after a colon, a known divisor of its value),
# or a value that is compiled in.
Type = str | int | bool | None


class Specialization(NamedTuple):
    """What a kernel is compiled for."""

    kernel: str  # module.function
    arguments: tuple[Type, ...]  # of the run-time parameters
    compiled_in: tuple[Hashable, ...]  # values of the parameters after those
    gate: str | None = None  # whose functions the kernel calls
    orders: tuple[str, ...] = ()
    precision: str = ""
    is_value: bool = False
    is_dependent: bool = False  # on the kernel before it: see column_sums
    threads: int = THREADS  # of a program
    most_registers: int | None = None  # of a thread, on compute capability 9.0


def _jit_function(name: str) -> "KernelInterface":
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"gelu_kernels.triton_kernels.{module}"), function)


def _constants(s: Specialization, backend: str, has_float8: bool = False) -> tuple[object, ...]:
    """All compiled-in values, in the order of the kernel's parameters."""
    if s.gate is None:
        return s.compiled_in
    from gelu_kernels.triton_kernels import gates

    constants = gates.constants(
        s.gate,
        s.precision,
        backend,
        order=s.orders[0],
        is_value=s.is_value,
        has_float8=has_float8,
    )
    functions = [gates.function(s.gate, order, constants) for order in s.orders]
    return *functions, constants, *s.compiled_in


def compile(s: Specialization, target: "GPUTarget") -> "CompiledKernel":
    """Compiles for a ``GPUTarget``; needs no GPU."""
    import triton
    from triton.compiler import ASTSource

    function = _jit_function(s.kernel)
    has_float8 = target.backend == "cuda" and target.arch >= 89  # PTX ISA, cvt
    overlaps = target.backend == "cuda" and target.arch >= 90  # CUDA programming guide
    values = (*s.arguments, *_constants(s, target.backend, has_float8))
    if "OVERLAPS" in function.arg_names:
        values = (*values, overlaps)
    signature, constants, attributes = {}, {}, {}
    for i, (name, value) in enumerate(zip(function.arg_names, values, strict=True)):
        if isinstance(value, str):
            signature[name], _, divisor = value.partition(":")
            if divisor:
                attributes[(i,)] = [["tt.divisibility", int(divisor)]]
        else:
            signature[name] = "constexpr"
            constants[name] = value
    options = {"num_warps": s.threads // target.warp_size, "enable_fp_fusion": False}
    if s.most_registers is not None and target.backend == "cuda" and target.arch == 90:
        options["maxnreg"] = s.most_registers
    if overlaps and s.is_dependent:
        options["launch_pdl"] = True
    return triton.compile(
        ASTSource(function, signature, constants, attributes), target=target, options=options
    )


_choosing_cache = threading.Lock()
_own_cache: tempfile.TemporaryDirectory | None = None


def _ensure_cache() -> None:
    """Triton's cache is in the user's home; where that is not writable, a temporary folder."""
    global _own_cache
    from triton import knobs

    folder = knobs.cache.dir
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        writable = False
    else:
        writable = os.access(folder, os.W_OK)
    if not writable:
        _own_cache = tempfile.TemporaryDirectory(prefix="gelu_kernels-")
        knobs.cache.dir = _own_cache.name


def _compile_for_this_device(op: str, s: Specialization) -> "CompiledKernel":
    import triton

    target = "this GPU"
    try:
        with _choosing_cache:
            _ensure_cache()  # before Triton makes a driver, which it compiles too
        target = triton.runtime.driver.active.get_current_target()
        return compile(s, target)
    except Exception as error:
        raise RuntimeError(
            f"gelu_kernels::{op}: Triton {triton.__version__} has no kernel for {target}: {error}"
        ) from error


Start = Callable[[Grid, Sequence[Tensor | None], Sequence[float]], None]


def _interpreted(s: Specialization) -> Start:
    kernel, constants = _jit_function(s.kernel), _constants(s, "interpreter")
    if "OVERLAPS" in kernel.arg_names:
        constants = (*constants, False)

    def start(
        grid: Grid, tensors: Sequence[Tensor | None], numbers: Sequence[float | None]
    ) -> None:
        # The interpreter uses the tensor's dtype, which NumPy may lack.
        bits = {"*u8": torch.uint8, "*i32": torch.int32}
        types = [str(type).partition(":")[0] for type in s.arguments[: len(tensors)]]
        stated = [t.view(bits[u]) if u in bits else t for t, u in zip(tensors, types, strict=True)]
        kernel[grid](*stated, *numbers, *constants)

    return start


def _compiled(op: str, s: Specialization, device: torch.device) -> Start:
    from triton.runtime import driver

    on_device = torch.get_device_module(device).device
    with on_device(device):
        kernel = _compile_for_this_device(op, s)
        # What kernel[grid] looks up at every call, in 3 us.
        run, metadata = kernel.run, kernel.packed_metadata
    active, index = driver.active, device.index or 0  # None in a test
    no_hooks = (None,) * 3
    # The launcher expects an argument for each compiled-in value, and ignores it.
    compiled_in = (None,) * (len(kernel.src.fn.arg_names) - len(s.arguments))

    def start(
        grid: Grid, tensors: Sequence[Tensor | None], numbers: Sequence[float | None]
    ) -> None:
        if active.get_current_device() != index:
            with on_device(device):
                return start(grid, tensors, numbers)
        stream = active.get_current_stream(index)
        pointers = [t if t is None else t.data_ptr() for t in tensors]
        function = kernel.function  # a local reference keeps it loaded
        run(*grid, stream, function, metadata, *no_hooks, *pointers, *numbers, *compiled_in)

    return start


_starts: dict[Hashable, Start] = {}


def launch(
    op: str,
    key: Hashable,
    specialize: Callable[[Hashable], Specialization],
    grid: Grid,
    tensors: Sequence[Tensor | None],
    numbers: Sequence[float | None],
) -> None:
    """Starts the kernel that ``specialize(key)`` describes, on the tensors' device and its current
    stream. Without a GPU, TRITON_INTERPRET=1 lets Triton interpret it."""
    device = next(t.device for t in tensors if t is not None)
    start = _starts.get((device, specialize, key))
    if start is None:
        try:
            from triton import knobs
        except ImportError as error:
            raise RuntimeError(
                f"gelu_kernels::{op}: this build's kernels for {device} need Triton, which cannot "
                f"be imported: {error}. Install triton or, for a GPU of NVIDIA, build with nvcc."
            ) from error
        s = specialize(key)
        start = _interpreted(s) if knobs.runtime.interpret else _compiled(op, s, device)
        _starts[device, specialize, key] = start
    start(grid, tensors, numbers)
