"""The core operators of a gate with a location and a scale, which write their first arguments, the
results. csrc/ops/cdf/kernels.h has the same plan."""

import torch
from torch import Tensor

from gelu_kernels.triton_kernels import bias_gradient
from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.launch import Specialization
from gelu_kernels.triton_kernels.matrices import TYPES, integer, pointer
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES, column_sum_tiles

FORWARD = "tail", "density", "tail_at"
BACKWARD = "tail", "density", "distribution_at"
ROW, LEAST_COLUMNS, MOST_COLUMNS = 1024, 64, 16384  # as in csrc/ops/cdf/kernels.h


def along(columns: int, *parameters: Tensor) -> list[Tensor]:
    """The parameters as vectors along the columns."""
    return [t.expand(columns).contiguous() for t in parameters]


def cdf_gate_forward(y: Tensor, x: Tensor, loc: Tensor, scale: Tensor, gate: str) -> None:
    numbers = loc.dim() == scale.dim() == 0
    rows = (loc, scale) if numbers or x.numel() == 0 else along(x.size(-1), loc, scale)
    over_tiles(
        "cdf_gate_forward",
        f"cdf.kernels.{'map_tile' if numbers else 'map_rows'}",
        gate,
        FORWARD,
        (y,),
        (x,),
        x,
        *rows,
        keep_columns=not numbers,
    )


def specialize_sums(key: bias_gradient.Key) -> Specialization:
    partial = pointer(bias_gradient.sum_type(key.dtype), aligned=True)
    arguments = (
        *[pointer(key.dtype, key.aligned)] * 5,
        partial,
        partial,
        "i64",
        integer(key.dtype, key.whole),
        "i64",
        *[integer(key.dtype, key.aligned)] * 3,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first
    return Specialization(
        "cdf.column_sums.sum_columns", arguments, compiled_in, key.gate, BACKWARD, TYPES[key.dtype]
    )


def cdf_gate_backward(
    dx: Tensor,
    dloc: Tensor,
    dscale: Tensor,
    dy: Tensor,
    x: Tensor,
    loc: Tensor,
    scale: Tensor,
    gate: str,
) -> None:
    op = "cdf_gate_backward"
    if dx.numel() == 0:
        dloc.zero_()
        dscale.zero_()
        return
    numbers = loc.dim() == scale.dim() == 0
    flat = numbers and not (x.dim() > 1 and LEAST_COLUMNS <= x.size(-1) <= MOST_COLUMNS)
    if flat and not dx.is_contiguous():
        dense_dx = torch.empty_like(dx, memory_format=torch.contiguous_format)
        cdf_gate_backward(dense_dx, dloc, dscale, dy, x, loc, scale, gate)
        dx.copy_(dense_dx)
        return
    columns = ROW if flat else dx.size(-1)
    rows, rest = divmod(dx.numel(), columns)
    blocks = column_sum_tiles(rows, columns, dx.itemsize).blocks
    used = blocks * columns + rest
    padded = -(-used // ROW) * ROW
    partials = torch.empty((2, padded), dtype=bias_gradient.sum_type(dx.dtype), device=dx.device)
    if padded > used:
        partials[:, used:].zero_()
    parameters = along(columns, loc, scale)
    unit = VECTOR_BYTES // x.itemsize

    def sum_rows(place: int, *matrices: Tensor) -> None:
        vectors = [t[: matrices[0].size(-1)] for t in parameters]
        own = [partial[place:] for partial in partials]
        bias_gradient.with_matrices(op, specialize_sums, gate, matrices, vectors, own, unit)

    if flat:
        elements = [t.reshape(-1) for t in (dx, dy, x)]
        if rows > 0:
            sum_rows(0, *[t[: rows * ROW].unflatten(0, (rows, ROW)) for t in elements])
        if rest > 0:
            sum_rows(blocks * ROW, *[t[rows * ROW :] for t in elements])
    else:
        sum_rows(0, dx, dy, x)

    for sums, partial in zip((dloc, dscale), partials, strict=True):
        if sums.dim() == 1:
            bias_gradient.add_partial_sums(op, partial[: blocks * columns], sums)
        else:
            between = torch.empty(ROW, dtype=partials.dtype, device=dx.device)
            bias_gradient.add_partial_sums(op, partial, between)
            bias_gradient.add_partial_sums(op, between, sums)
