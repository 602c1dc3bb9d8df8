"""The Triton kernels on a machine without a GPU, by Triton's interpreter.

Three of its operations differ from a GPU's, and are replaced here: its fma rounds twice, its
conversion to bfloat16 truncates, and its maximum of zeros of both signs is either of them. So is a
fourth, as Triton 3.6 takes the ``int`` of an array of one number, which NumPy 2.4 refuses.
"""

import ctypes
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from unittest import mock

import cpp_library
import numpy as np
import torch
from torch.library import _scoped_library

from gelu_kernels import backend
from gelu_kernels.triton_kernels import tuning

HERE = Path(__file__).parent


def switch_on() -> None:
    """Before Triton is imported, which then prepares all functions for its interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"


@cache
def _library() -> ctypes.CDLL:
    flags = ["-O2", "-ffp-contract=off", "-fno-math-errno", *cpp_library.processor_flags()]
    with cpp_library.build_folder("triton_interpreter") as folder:
        return cpp_library.compile_and_load("gelu_kernels_fma", [HERE / "fma.cpp"], folder, flags)


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    arrays = [np.ascontiguousarray(a) for a in np.broadcast_arrays(x, y, z)]
    dtype = arrays[0].dtype
    assert dtype in (np.float32, np.float64) and all(a.dtype == dtype for a in arrays)
    out = np.empty_like(arrays[0])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(_library(), f"fma_{dtype}")(ctypes.c_int64(out.size), *pointers)
    return out


def _convert(data: np.ndarray, source: torch.dtype, to: torch.dtype) -> np.ndarray:
    """Between float32 and bfloat16, which is kept as uint16."""
    bits = {torch.float32: np.int32, torch.bfloat16: np.int16}
    t = torch.from_numpy(np.ascontiguousarray(data).view(bits[source])).view(source).to(to)
    integer = torch.int32 if to == torch.float32 else torch.int16
    return t.view(integer).numpy().view(np.float32 if to == torch.float32 else np.uint16)


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The number if the other is NaN; 0, not -0, of both."""
    x, y = np.broadcast_arrays(x, y)
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, x + y, np.fmax(x, y))  # -0 + -0 = -0


@cache
def _correct_interpreter() -> None:
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.interpreter import (
        GridExecutor,
        InterpretedFunction,
        InterpreterBuilder,
        TensorHandle,
    )

    cast_impl = InterpreterBuilder.cast_impl
    dtypes = {tl.float32: torch.float32, tl.bfloat16: torch.bfloat16}

    def cast(self: InterpreterBuilder, source: TensorHandle, to: tl.dtype) -> TensorHandle:
        pair = source.dtype.scalar, to.scalar
        if pair in ((tl.float32, tl.bfloat16), (tl.bfloat16, tl.float32)):
            return TensorHandle(_convert(source.data, *(dtypes[t] for t in pair)), to.scalar)
        return cast_impl(self, source, to)

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: type, scope: interpreter._LangPatchScope) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    launch, call = GridExecutor.__call__, InterpretedFunction.__call__
    prepared = set()
    one_at_a_time = Lock()

    def launch_anew(self: GridExecutor, *arguments: object, **options: object) -> None:
        with one_at_a_time, np.errstate(all="ignore"):
            prepared.clear()
            launch(self, *arguments, **options)

    def call_again(self: InterpretedFunction, *arguments: object, **options: object) -> object:
        """Of one function by another. The language is prepared for it at every call, which takes a
        millisecond; once in a launch is enough."""
        if self.fn in prepared:
            return self.rewrite()(*arguments, **options)
        prepared.add(self.fn)
        return call(self, *arguments, **options)

    InterpreterBuilder.cast_impl = cast
    InterpreterBuilder.create_fma = lambda self, x, y, z: TensorHandle(
        fma(x.data, y.data, z.data), z.dtype.scalar
    )
    InterpreterBuilder.create_maxnumf = lambda self, x, y: TensorHandle(
        maximum(x.data, y.data), x.dtype.scalar
    )
    interpreter._patch_lang_tensor = patch_tensor_and_index
    GridExecutor.__call__, InterpretedFunction.__call__ = launch_anew, call_again


@contextmanager
def registered(key: str) -> Iterator[None]:
    """The operators take tensors of this dispatch key to the Triton kernels."""
    with _scoped_library("gelu_kernels", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a kernel that takes another's place
            for name, kernel in backend.TRITON.items():
                library.impl(name, kernel, key)
        yield


# Larger tiles than a GPU's: the interpreter takes 0.1 ms for an operation, on however few elements.
TILES = {"THREADS": 4096, "SEGMENT_BYTES": 8192}


@contextmanager
def enabled() -> Iterator[None]:
    """On a CPU, by the interpreter."""
    _correct_interpreter()
    plans = (
        tuning.map_tiles,
        tuning.column_sum_tiles,
        tuning.soi_tiles,
    )
    with registered("CPU"), mock.patch.multiple(tuning, **TILES):
        for plan in plans:
            plan.cache_clear()
        yield
    for plan in plans:
        plan.cache_clear()
