"""The core operators of GLUs, y = g(x) up: of two tensors x and up, or of one tensor's halves."""

import torch
from torch import Tensor

from gelu_kernels import _C
from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.gate.operators import map_rows


def glu_forward(x: Tensor, up: Tensor, gate: str) -> Tensor:
    op = "glu_forward"
    _C.check_glu(op, x, up, gate)
    return map_rows(op, "value", gate, torch.empty_like(x), x, factor=up)


def glu_halves_forward(x: Tensor, gate: str) -> Tensor:
    op = "glu_halves_forward"
    _C.check_glu_halves(op, x, gate)
    x, up = x.chunk(2, -1)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return map_rows(op, "value", gate, y, x, factor=up)


KERNEL = "glu.kernels.glu_backward"
ORDERS = "value", "derivative"


def glu_backward(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> tuple[Tensor, Tensor]:
    op = "glu_backward"
    _C.check_glu(op, x, up, gate, dy=dy)
    dx, dup = torch.empty_like(x), torch.empty_like(up)
    over_tiles(op, KERNEL, gate, ORDERS, (dx, dup), (dy, x, up), x)
    return dx, dup


def glu_halves_backward(dy: Tensor, x: Tensor, gate: str) -> Tensor:
    op = "glu_halves_backward"
    _C.check_glu_halves(op, x, gate, dy=dy)
    result = torch.empty_like(x)
    (dx, dup), (x, up) = result.chunk(2, -1), x.chunk(2, -1)
    # Halves have gaps: that they lie alike is not enough for one row.
    over_tiles(op, KERNEL, gate, ORDERS, (dx, dup), (dy, x, up), x, keep_columns=True)
    return result
