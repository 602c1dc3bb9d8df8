"""The core operators of GLUs: of two tensors x and up, or of one tensor's halves. They write their
first arguments, the results. A plain one, y = g(x) up, has its own kernels."""

from torch import Tensor

from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.gate.operators import map_rows
from gelu_kernels.triton_kernels.glu.over_rows import Options, over_rows

KERNEL = "glu.kernels.glu_backward"
ORDERS = "value", "derivative"


def _forward(op: str, y: Tensor, x: Tensor, up: Tensor, options: Options) -> None:
    if options.are_plain:
        map_rows(op, "value", options.gate, y, x, factor=up)
    else:
        over_rows(op, "rows_forward", (y,), (), (x, up), options)


def _backward(
    op: str,
    results: tuple[Tensor, Tensor],
    dweight: Tensor | None,
    inputs: tuple[Tensor, Tensor, Tensor],
    options: Options,
    *,
    halves: bool,
) -> None:
    if options.are_plain:
        # Halves have gaps, so equal strides do not make them one row.
        gate, x = options.gate, inputs[1]
        over_tiles(op, KERNEL, gate, ORDERS, results, inputs, x, keep_columns=halves)
    else:
        over_rows(op, "rows_backward", results, (dweight,), inputs, options)


def glu_forward(
    y: Tensor, x: Tensor, up: Tensor, weight: Tensor | None, gate: str, limit: float | None = None,
    up_offset: float = 0.0,
) -> None:  # fmt: skip
    _forward("glu_forward", y, x, up, Options(weight, gate, limit, up_offset))


def glu_backward(
    dx: Tensor, dup: Tensor, dy: Tensor, x: Tensor, up: Tensor, weight: Tensor | None, gate: str,
    limit: float | None = None, up_offset: float = 0.0,
) -> None:  # fmt: skip
    options = Options(weight, gate, limit, up_offset)
    _backward("glu_backward", (dx, dup), None, (dy, x, up), options, halves=False)


def glu_backward_weight(
    dx: Tensor, dup: Tensor, dweight: Tensor, dy: Tensor, x: Tensor, up: Tensor, weight: Tensor,
    gate: str, limit: float | None = None, up_offset: float = 0.0,
) -> None:  # fmt: skip
    options = Options(weight, gate, limit, up_offset)
    _backward("glu_backward_weight", (dx, dup), dweight, (dy, x, up), options, halves=False)


def glu_halves_forward(
    y: Tensor, x: Tensor, weight: Tensor | None, gate: str, limit: float | None = None,
    up_offset: float = 0.0,
) -> None:  # fmt: skip
    x, up = x.chunk(2, -1)
    _forward("glu_halves_forward", y, x, up, Options(weight, gate, limit, up_offset))


def glu_halves_backward(
    dx: Tensor, dy: Tensor, x: Tensor, weight: Tensor | None, gate: str,
    limit: float | None = None, up_offset: float = 0.0,
) -> None:  # fmt: skip
    inputs, options = (dy, *x.chunk(2, -1)), Options(weight, gate, limit, up_offset)
    _backward("glu_halves_backward", dx.chunk(2, -1), None, inputs, options, halves=True)


def glu_halves_backward_weight(
    dx: Tensor, dweight: Tensor, dy: Tensor, x: Tensor, weight: Tensor, gate: str,
    limit: float | None = None, up_offset: float = 0.0,
) -> None:  # fmt: skip
    inputs, options = (dy, *x.chunk(2, -1)), Options(weight, gate, limit, up_offset)
    op = "glu_halves_backward_weight"
    _backward(op, dx.chunk(2, -1), dweight, inputs, options, halves=True)
