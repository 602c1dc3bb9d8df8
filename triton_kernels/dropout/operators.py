"""The core operators of dropout, which write their first arguments, the results."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gelu_kernels.triton_kernels import bias_gradient, tuning
from gelu_kernels.triton_kernels.launch import Specialization, launch
from gelu_kernels.triton_kernels.matrices import TYPES, are_aligned, integer, pointer
from gelu_kernels.triton_kernels.seed import argument
from gelu_kernels.triton_kernels.tuning import octet_tiles

ORDERS = {"forward": ("value",), "backward": ("value", "derivative")}


def threshold_of(p: float) -> int:
    """An element is dropped if its random word is less than this."""
    return round(p * 2**32)


def factor_of(p: float) -> float:
    """The factor of kept elements."""
    return 1 / (1 - p) if p < 1 else 0.0


class Rows(NamedTuple):
    """Operands of one shape in row-major order: as rows of whole octets, or as one row."""

    rows: int
    columns: int
    repeated: bool  # the bias repeats along the row
    tensors: list[Tensor | None]  # the operands or copies of them
    strides: list[int]  # of the rows


def rows_of(operands: Sequence[Tensor | None], bias: Tensor | None) -> Rows:
    y = operands[0]
    elements, last = y.numel(), y.size(-1) if y.dim() > 0 else 1
    contiguous = all(t is None or t.is_contiguous() for t in operands)
    if last % 8 == 0 and last != elements and (bias is not None or not contiguous):
        found = [None if t is None else _with_rows(t, last) for t in operands]
        strides = [0 if t is None else t.view(-1, last).stride(0) for t in found]
        return Rows(elements // last, last, False, found, strides)
    found = [None if t is None else t.contiguous() for t in operands]
    repeated = bias is not None and last != elements
    return Rows(1, elements, repeated, found, [0] * len(found))


def _with_rows(t: Tensor, columns: int) -> Tensor:
    """t, or a copy, such that rows of consecutive elements have one stride."""
    try:
        return t if t.view(-1, columns).stride(1) == 1 else t.contiguous()
    except RuntimeError:
        return t.contiguous()


class Key(NamedTuple):
    kernel: str
    gate: str
    dtype: torch.dtype
    operands: tuple[bool, ...]  # which are given; the bias comes last
    aligned: bool
    rows: int
    columns: int
    columns_first: bool
    octets: int  # of each thread
    repeated: bool
    index: tuple[bool, ...]  # for forward: GROUPED, and whether row_length is given
    seed: str | None  # for forward: its type


def specialize(key: Key) -> Specialization:
    operand = pointer(key.dtype, key.aligned)
    *operands, bias = [operand if given else None for given in key.operands]
    number = "fp64" if key.dtype == torch.float64 else "fp32"
    mask = "*u8"  # of unknown alignment, else threads exchange bytes to store more at once
    row = integer(key.dtype, key.aligned)
    strides = [row] * len(operands)
    if key.kernel == "forward":
        y, *inputs = operands
        tensors, numbers, place = [y, mask, *inputs, bias, key.seed], ["i64", number], ["i64"] * 3
    else:
        tensors, numbers, place = [*operands, bias, mask], [number], []
    arguments = (*tensors, *numbers, "i64", "i64", *strides, "i64", *place)
    compiled_in = (*key[5:10], *key.index)
    name = f"dropout.kernels.{key.kernel}"
    precision = TYPES[key.dtype]
    return Specialization(name, arguments, compiled_in, key.gate, ORDERS[key.kernel], precision)


def start(
    op: str,
    kernel: str,
    gate: str,
    results: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
    bias: Tensor | None,
    mask: Tensor,
    numbers: Sequence[float],
    seed: Tensor | None = None,
    place: Sequence[int] = (),
    index: tuple[bool, ...] = (),
) -> None:
    m = rows_of((*results, *inputs), bias)
    first = m.tensors[0]
    bias = None if bias is None else bias.contiguous()
    tensors = (*m.tensors, bias)
    given = tuple([t is not None for t in tensors])
    tiles = octet_tiles(m.rows, m.columns, first.itemsize, sum(given[len(results) :]))
    own_seed = argument(seed, first)
    key = Key(
        kernel,
        gate,
        first.dtype,
        given,
        are_aligned(tensors, m.strides),
        *tiles[:3],
        tiles.rows * tiles.columns // (8 * tuning.THREADS),
        m.repeated,
        index,
        own_seed.type,
    )
    pointers = (*tensors, mask)
    if seed is not None:
        pointers = (first, mask, *tensors[1:], *own_seed.tensors)
    repeat = 0 if bias is None else bias.numel()
    integers = (m.rows, m.columns, *m.strides, repeat, *place)
    numbers = (*own_seed.numbers, *numbers, *integers)
    launch(op, key, specialize, tiles.grid, pointers, numbers)
    for result, written in zip(results, m.tensors, strict=False):
        if written is not result:
            result.copy_(written)


def draw(
    op: str,
    y: Tensor,
    mask: Tensor,
    x: Tensor,
    up: Tensor | None,
    bias: Tensor | None,
    seed: Tensor,
    gate: str,
    p: float,
    offset: int,
    row_length: int,
    row_stride: int,
) -> None:
    threshold = threshold_of(p)
    if threshold == 2**32:
        y.zero_()
        mask.zero_()
    elif y.numel() > 0:
        numbers, place = (threshold, factor_of(p)), (offset, row_length, row_stride)
        index = row_length == 0 and offset % 8 == 0, row_length != 0
        start(op, "forward", gate, (y,), (x, up), bias, mask, numbers, seed, place, index)


def gate_dropout_forward(
    y: Tensor, mask: Tensor, x: Tensor, bias: Tensor | None, seed: Tensor, gate: str, p: float,
    offset: int = 0, row_length: int = 0, row_stride: int = 0,
) -> None:  # fmt: skip
    index = offset, row_length, row_stride
    draw("gate_dropout_forward", y, mask, x, None, bias, seed, gate, p, *index)


def glu_dropout_forward(
    y: Tensor, mask: Tensor, x: Tensor, up: Tensor, seed: Tensor, gate: str, p: float,
    offset: int = 0, row_length: int = 0, row_stride: int = 0,
) -> None:  # fmt: skip
    index = offset, row_length, row_stride
    draw("glu_dropout_forward", y, mask, x, up, None, seed, gate, p, *index)


def glu_dropout_halves_forward(
    y: Tensor, mask: Tensor, x: Tensor, seed: Tensor, gate: str, p: float,
    offset: int = 0, row_length: int = 0, row_stride: int = 0,
) -> None:  # fmt: skip
    halves, index = x.chunk(2, -1), (offset, row_length, row_stride)
    draw("glu_dropout_halves_forward", y, mask, *halves, None, seed, gate, p, *index)


def gate_dropout_backward(
    dx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, mask: Tensor, gate: str, p: float
) -> None:
    if dx.numel() > 0:
        op, inputs = "gate_dropout_backward", (dy, x, None)
        start(op, "backward", gate, (dx, None), inputs, bias, mask.contiguous(), (factor_of(p),))


def glu_dropout_backward(
    dx: Tensor, dup: Tensor, dy: Tensor, x: Tensor, up: Tensor, mask: Tensor, gate: str, p: float
) -> None:
    if dx.numel() > 0:
        op, results, inputs = "glu_dropout_backward", (dx, dup), (dy, x, up)
        start(op, "backward", gate, results, inputs, None, mask.contiguous(), (factor_of(p),))


def glu_dropout_halves_backward(
    dx: Tensor, dy: Tensor, x: Tensor, mask: Tensor, gate: str, p: float
) -> None:
    if dx.numel() > 0:
        op, results, inputs = "glu_dropout_halves_backward", dx.chunk(2, -1), (dy, *x.chunk(2, -1))
        start(op, "backward", gate, results, inputs, None, mask.contiguous(), (factor_of(p),))


def specialize_sums(key: bias_gradient.Key) -> Specialization:
    sum_type = bias_gradient.sum_type(key.dtype)
    arguments = (
        *[pointer(key.dtype, key.aligned)] * 4,
        "*u8",
        pointer(sum_type, aligned=True),
        TYPES[sum_type],
        "i64",
        "i64:8" if key.whole else "i64",
        "i64",
        *[integer(key.dtype, key.aligned)] * 3,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first, key.whole
    name, precision = "dropout.column_sums.sum_dropped_columns", TYPES[key.dtype]
    return Specialization(name, arguments, compiled_in, key.gate, ("derivative",), precision)


def gate_dropout_backward_bias(
    dx: Tensor, dbias: Tensor, dy: Tensor, x: Tensor, bias: Tensor, mask: Tensor, gate: str,
    p: float,
) -> None:  # fmt: skip
    bias_gradient.sum_columns(
        "gate_dropout_backward_bias",
        specialize_sums,
        gate,
        (dx, dbias),
        (dy, x),
        (bias.contiguous(), mask.contiguous()),
        unit=8,
        numbers=(factor_of(p),),
    )
