"""GPUs without memory or kernels, on which seeds can be drawn. For a process of its own: torch
takes them for real ones."""

import ctypes
from functools import cache
from pathlib import Path

import gelu_kernels  # noqa: F401  (defines the operators)
from tests import ROOT, cpp_library

HERE = Path(__file__).parent


class Drawn(ctypes.Structure):
    _fields_ = [
        ("seed", ctypes.c_int64),
        ("offset", ctypes.c_uint64),  # of the generator, afterwards
        ("by_operator", ctypes.c_bool),
        ("resets_rnn", ctypes.c_bool),
    ]


@cache
def _library() -> ctypes.PyDLL:
    flags = ["-O1", "-fopenmp", "-fvisibility=hidden", *cpp_library.WARNINGS]
    with cpp_library.build_folder("fake_gpu") as folder:
        path = cpp_library.compile_and_load(
            "gelu_kernels_fake_gpu", [HERE / "fake_gpu.cpp"], folder, flags, include=[ROOT]
        )._name
    loaded = ctypes.PyDLL(path)  # with Python's lock, as a dispatch mode is Python
    loaded.fake_gpu_draw.restype = Drawn
    loaded.fake_gpu_draw.argtypes = [ctypes.c_int, *[ctypes.c_bool] * 2, *[ctypes.c_uint64] * 2]
    return loaded


def draw(
    seed: int = 5,
    offset: int = 8,
    device: int = 0,
    is_subclass: bool = False,
    wants_gradient: bool = False,
) -> Drawn:
    """For a tensor on the device, with a generator of this seed and offset."""
    return _library().fake_gpu_draw(device, is_subclass, wants_gradient, seed, offset)


def capture(on: bool) -> None:
    """A graph is being captured on every stream."""
    _library().fake_gpu_capture(on)
