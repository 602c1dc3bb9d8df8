"""The machine in C++, as Python calls it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np

from tests import cpp_library
from tests.ptx_on_cpu.assemble import MAX_OPERANDS, Kind, Program

HERE = Path(__file__).parent / "machine"

FLAGS = ["-O2", "-ftree-vectorize", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-fvisibility=hidden", *cpp_library.WARNINGS]


class Error(IntEnum):
    """How the special function unit errs, within its bound."""

    NONE = 0
    UP = 1
    DOWN = 2
    RANDOM = 3


@cache
def library() -> ctypes.CDLL:
    flags = [*FLAGS, *cpp_library.processor_flags()]
    with cpp_library.build_folder("ptx_machine") as folder:
        sources = sorted(HERE.rglob("*.cpp"))
        loaded = cpp_library.compile_and_load(
            "gelu_kernels_ptx_machine", sources, folder, flags, include=[HERE]
        )
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    loaded.ptx_program.restype = pointer
    loaded.ptx_program.argtypes = [number, pointer, pointer, *[number, pointer] * 4, pointer]
    loaded.ptx_forget.argtypes = [pointer]
    loaded.ptx_executed.argtypes = [pointer, pointer]
    loaded.ptx_run_ends.argtypes = [number]
    loaded.ptx_launch.restype = ctypes.c_bool
    loaded.ptx_launch.argtypes = [
        pointer, pointer, ctypes.c_uint64, pointer, ctypes.c_bool, pointer, ctypes.c_size_t,
        pointer,
    ]  # fmt: skip
    loaded.ptx_set_errors.argtypes = [
        ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_double,
    ]  # fmt: skip
    loaded.ptx_record_allocations()
    return loaded


@cache
def widths(opcode: str) -> list[int] | None:
    """The sizes of its operands in bytes; None if the machine does not know the opcode."""
    found = (ctypes.c_uint8 * MAX_OPERANDS)()
    count = library().ptx_operation(opcode.encode(), found)
    return None if count < 0 else list(found[:count])


def load(program: Program) -> int:
    """Returns the machine's handle of the program."""
    fields = np.zeros((len(program.instructions), 5 + MAX_OPERANDS), np.int64)
    for row, i in zip(fields, program.instructions, strict=True):
        row[:5] = i.kind, i.guard, i.negated, i.target, i.offset
        row[5 : 5 + len(i.operands)] = i.operands
    opcodes = [b"" if i.kind != Kind.PLAIN else i.opcode.encode() for i in program.instructions]
    columns = program.columns
    lists = [columns.constants, columns.special_registers, columns.parameters, columns.variables]
    tables = [np.array(found, np.int64).reshape(-1) for found in lists]
    sizes = np.array(
        [
            columns.register_bytes,
            columns.parameter_bytes,
            columns.shared_bytes,
            columns.variable_bytes,
        ],
        np.int64,
    )
    return library().ptx_program(
        len(fields),
        (ctypes.c_char_p * len(opcodes))(*opcodes),
        fields.ctypes.data,
        *[x for n, t in zip(map(len, lists), tables, strict=True) for x in (n, t.ctypes.data)],
        sizes.ctypes.data,
    )


def executed(handle: int, length: int) -> np.ndarray:
    """How often each instruction was executed."""
    counts = np.zeros(length, np.int64)
    library().ptx_executed(handle, counts.ctypes.data)
    return counts


def launch(
    handle: int, shape: tuple[int, ...], shared: int, parameters: int, is_dependent: bool
) -> tuple[str, list[int]]:
    """The text of a fault and its place; an empty text if there is none."""
    text, where = ctypes.create_string_buffer(512), (ctypes.c_int64 * 5)()
    numbers = (ctypes.c_uint32 * 6)(*shape)
    library().ptx_launch(handle, numbers, shared, parameters, is_dependent, text, len(text), where)
    return text.value.decode(), list(where)


@contextmanager
def special_function_unit(
    exp2: Error, reciprocal: Error, seed: int = 0, scale: float = 1
) -> Iterator[None]:
    """`scale` multiplies the bounds."""
    library().ptx_set_errors(exp2, reciprocal, seed, scale)
    try:
        yield
    finally:
        library().ptx_set_errors(Error.RANDOM, Error.RANDOM, 0, 1)


@contextmanager
def only_ends(blocks: int) -> Iterator[None]:
    """Runs only the first and the last ``blocks`` blocks of a longer launch."""
    library().ptx_run_ends(blocks)
    try:
        yield
    finally:
        library().ptx_run_ends(0)
