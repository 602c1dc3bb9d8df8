"""The inputs of a quantising pass, and how its kernels start."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels.launch import Grid, Specialization, Type, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, pointer
from gelu_kernels.triton_kernels.quantized.recipe import Compiled, Recipe
from gelu_kernels.triton_kernels.tuning import THREADS, VECTOR_BYTES

# A number or a tensor that a kernel takes, and its type.
Number = tuple[float | None, Type]
Pointer = tuple[Tensor | None, Type]

# Of everything but the rows: scaled_mm takes no other sizes.
SIZE = "i64:16"

NONE: Pointer = (None, None)


class Inputs(NamedTuple):
    """The inputs of a pass."""

    gate: str
    x: Tensor
    up: Tensor | None = None
    dy: Tensor | None = None
    bias: Tensor | None = None
    weight: Tensor | None = None  # of each row
    limit: float | None = None
    up_offset: float = 0.0
    is_cast: bool = False  # y = x

    @property
    def matrices(self) -> int:
        return sum(t is not None for t in self[1:4])

    @property
    def has_two_results(self) -> bool:
        return self.up is not None and self.dy is not None

    @property
    def is_plain(self) -> bool:
        return self.weight is None and self.limit is None and self.up_offset == 0


def in_vectors(inputs: Inputs) -> Inputs:
    """The inputs as matrices whose rows consist of whole vectors, or copies that do."""
    columns = inputs.x.size(-1)

    def matrix(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        m = t.reshape(-1, columns)
        has_vectors = m.stride(1) == 1 and are_aligned((m,), (m.stride(0),))
        return m if has_vectors else m.clone(memory_format=torch.contiguous_format)

    matrices = map(matrix, inputs[1:5])
    weight = None if inputs.weight is None else inputs.weight.contiguous()
    return Inputs(inputs.gate, *matrices, weight, *inputs[6:])


def specialize(key: Specialization) -> Specialization:
    return key


def start(
    op: str,
    kernel: str,
    grid: Grid,
    results: Sequence[Pointer],
    inputs: Inputs,
    numbers: Sequence[Number],
    compiled_in: tuple[Compiled | bool, ...],
    threads: int = THREADS,
) -> None:
    operands = inputs[1:5]
    dtype = inputs.x.dtype
    strides = [0 if t is None else t.stride(0) for t in operands[:3]]
    is_value = all(t is None for t in operands[1:]) and not inputs.is_cast  # the gate of a stored x
    precision = TYPES[dtype]
    up_offset = None if inputs.is_plain else inputs.up_offset
    options: list[Number] = [(inputs.limit, "fp32"), (up_offset, "fp32")]
    arguments: tuple[Type, ...] = (
        *(None if t is None else type for t, type in results),
        *(None if t is None else pointer(dtype, aligned=True) for t in operands),
        None if inputs.weight is None else pointer(dtype, aligned=False),
        *(None if n is None else type for n, type in options),
        *(type for _, type in numbers),
        *[integer(dtype, aligned=True)] * len(strides),
    )
    key = Specialization(
        f"quantized.{kernel}",
        arguments,
        compiled_in,
        inputs.gate,
        ("value", "derivative"),
        "fast_bf16" if is_value and precision == "bf16" else precision,
        is_value,
        threads=threads,
    )
    tensors = (*(t for t, _ in results), *operands, inputs.weight)
    integers = (*(n for n, _ in options), *(n for n, _ in numbers), *strides)
    launch(op, key, specialize, grid, tensors, integers)


def data_type(inputs: Inputs) -> str:
    """A thread stores as many elements as it loads: with a larger known alignment, threads would
    exchange elements."""
    return f"*u8:{VECTOR_BYTES // inputs.x.itemsize}"


def rounds_up(recipe: Recipe) -> Number:
    return int(recipe.mode == "rceil"), "i32"
