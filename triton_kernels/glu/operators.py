"""The core operators of GLUs, y = g(x) up: of two tensors x and up, or of one tensor's halves. They
write their first arguments, the results."""

from torch import Tensor

from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.gate.operators import map_rows

KERNEL = "glu.kernels.glu_backward"
ORDERS = "value", "derivative"


def glu_forward(y: Tensor, x: Tensor, up: Tensor, gate: str) -> None:
    map_rows("glu_forward", "value", gate, y, x, factor=up)


def glu_halves_forward(y: Tensor, x: Tensor, gate: str) -> None:
    x, up = x.chunk(2, -1)
    map_rows("glu_halves_forward", "value", gate, y, x, factor=up)


def glu_backward(dx: Tensor, dup: Tensor, dy: Tensor, x: Tensor, up: Tensor, gate: str) -> None:
    over_tiles("glu_backward", KERNEL, gate, ORDERS, (dx, dup), (dy, x, up), x)


def glu_halves_backward(dx: Tensor, dy: Tensor, x: Tensor, gate: str) -> None:
    x, up = x.chunk(2, -1)
    results = dx.chunk(2, -1)
    # Halves have gaps: that they lie alike is not enough for one row.
    op = "glu_halves_backward"
    over_tiles(op, KERNEL, gate, ORDERS, results, (dy, x, up), x, keep_columns=True)
