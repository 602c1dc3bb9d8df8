"""The core operators of a gate alone, which write their first arguments, the results."""

from torch import Tensor

from gelu_kernels.triton_kernels import bias_gradient
from gelu_kernels.triton_kernels.elementwise import over_tiles
from gelu_kernels.triton_kernels.launch import Specialization, Type
from gelu_kernels.triton_kernels.matrices import TYPES, integer, pointer
from gelu_kernels.triton_kernels.tuning import VECTOR_BYTES

ROWS, ALONE = "gate.kernels.map_rows", "gate.kernels.map_alone"


def map_rows(
    op: str,
    order: str,
    gate: str,
    out: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
    factor: Tensor | None = None,
    other: Tensor | None = None,
) -> None:
    """A function of the gate of x + bias, times the factors."""
    is_biased = bias is not None
    bias = bias.contiguous() if is_biased else None
    inputs = (other, factor, x)
    over_tiles(op, ROWS, gate, (order,), (out,), inputs, x, bias, keep_columns=is_biased)


def gate_forward(y: Tensor, x: Tensor, bias: Tensor | None, gate: str) -> None:
    # The parts of `map_alone` take a few instructions more, which wider elements do not repay.
    if bias is None and x.itemsize == 2:
        over_tiles("gate_forward", ALONE, gate, ("value",), (y,), (x,), x)
    else:
        map_rows("gate_forward", "value", gate, y, x, bias)


def gate_backward(dx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, gate: str) -> None:
    map_rows("gate_backward", "derivative", gate, dx, x, bias, dy)


def gate_double_backward(
    dx: Tensor, ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor | None, gate: str
) -> None:
    map_rows("gate_double_backward", "second_derivative", gate, dx, x, bias, dy, ddx)


def specialize_sums(key: bias_gradient.Key) -> Specialization:
    arguments: tuple[Type, ...] = (
        *[pointer(key.dtype, key.aligned)] * 4,
        pointer(bias_gradient.sum_type(key.dtype), aligned=True),
        "i64",
        integer(key.dtype, key.whole),
        "i64",
        *[integer(key.dtype, key.aligned)] * 3,
        *(1 if consecutive else "i64" for consecutive in key.consecutive),
    )
    compiled_in = key.columns, key.columns_first
    precision = TYPES[key.dtype]
    return Specialization(
        "gate.kernels.sum_columns", arguments, compiled_in, key.gate, ("derivative",), precision
    )


def gate_backward_bias(
    dx: Tensor, dbias: Tensor, dy: Tensor, x: Tensor, bias: Tensor, gate: str
) -> None:
    bias_gradient.sum_columns(
        "gate_backward_bias",
        specialize_sums,
        gate,
        (dx, dbias),
        (dy, x),
        (bias.contiguous(),),
        unit=VECTOR_BYTES // x.itemsize,
    )
