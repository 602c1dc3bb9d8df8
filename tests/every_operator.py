"""Every core operator once: what compares devices and what sanitizes their kernels runs these."""

from collections.abc import Iterator

import torch
from torch import Tensor

import gelu_kernels  # noqa: F401 (it registers the operators)

ops = torch.ops.gelu_kernels

SEED = 2**40 + 1


def every_operator(
    ddx: Tensor, dy: Tensor, x: Tensor, bias: Tensor, gate: str
) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Names and results. ddx, dy and x have one shape, bias is as long as their rows."""
    seed = torch.tensor(SEED, device=x.device)
    row = x.size(-1)
    # A part of a tensor with longer rows is at this place.
    place = {"offset": 3, "row_length": row, "row_stride": row + 5}
    for end, b in (("", None), (", bias", bias)):
        yield f"gate_forward{end}", (ops.gate_forward(x, b, gate),)
        yield f"gate_backward{end}", (ops.gate_backward(dy, x, b, gate),)
        yield f"gate_double_backward{end}", (ops.gate_double_backward(ddx, dy, x, b, gate),)
        yield f"soi_forward{end}", ops.soi_forward(x, b, seed, gate)
    yield "soi_forward of a part", (found := ops.soi_forward(x, bias, seed, gate, **place))
    mask = found[1]
    yield "gate_backward_bias", ops.gate_backward_bias(dy, x, bias, gate)
    yield "soi_backward", (ops.soi_backward(dy, mask),)
    yield "soi_backward_bias", ops.soi_backward_bias(dy, mask)
    yield "glu_forward", (ops.glu_forward(x, dy, gate),)
    yield "glu_backward", ops.glu_backward(ddx, x, dy, gate)
    half = row // 2
    packed, dy_of_half = x[..., : 2 * half], dy[..., :half]
    yield "glu_halves_forward", (ops.glu_halves_forward(packed, gate),)
    yield "glu_halves_backward", (ops.glu_halves_backward(dy_of_half, packed, gate),)
