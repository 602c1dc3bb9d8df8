"""The operators' results on a device beside those on the CPU, bit by bit."""

import oracle
import torch
from torch import Tensor

ops = torch.ops.gelu_kernels

# Each takes ddx, dy, x, bias (or None) and the gate.
OPERATORS = {
    "gate_forward": lambda ddx, dy, x, bias, gate: (ops.gate_forward(x, bias, gate),),
    "gate_backward": lambda ddx, dy, x, bias, gate: (ops.gate_backward(dy, x, bias, gate),),
    "gate_double_backward": lambda ddx, dy, x, bias, gate: (
        ops.gate_double_backward(ddx, dy, x, bias, gate),
    ),
    "glu_forward": lambda ddx, dy, x, bias, gate: (ops.glu_forward(x, dy, gate),),
    "glu_backward": lambda ddx, dy, x, bias, gate: ops.glu_backward(ddx, x, dy, gate),
    "gate_backward_bias": lambda ddx, dy, x, bias, gate: ops.gate_backward_bias(dy, x, bias, gate),
}


def patterns(t: Tensor) -> Tensor:
    return t.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[t.itemsize])


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(patterns(a), patterns(b))


def differing(a: Tensor, b: Tensor) -> int:
    """How many elements have other bits. A NaN is a NaN, whatever else is in it."""
    assert a.shape == b.shape and a.dtype == b.dtype
    return int(((patterns(a) != patterns(b)) & ~(a.isnan() & b.isnan())).sum())


def any_numbers(dtype: torch.dtype) -> Tensor:
    """As a matrix: in 16 bits all there are, else 65,536 random patterns of bits."""
    if dtype.itemsize == 2:
        x = oracle.every_16_bit_input(dtype)
    else:
        integers = torch.empty(2**13 * dtype.itemsize, dtype=torch.int64)
        x = integers.random_(-(2**63), None).view(dtype)
    return x.view(-1, 512)


def differing_from_cpu(gate: str, dtype: torch.dtype, device: str) -> dict[str, int]:
    """For each operator, how many of its results on the device have other bits than on the CPU."""
    # More than one block of rows, and tiles of columns with a ragged end.
    ordinary = (3 * torch.randn(1001, 1031, dtype=torch.float64)).to(dtype)
    counts = {}
    for x in (any_numbers(dtype), ordinary):
        bias, dy, ddx = (
            torch.randn(s, dtype=torch.float64).to(dtype) for s in (x[0].shape, x.shape, x.shape)
        )
        for name, operator in OPERATORS.items():
            for b in (None, bias):
                if name.startswith("glu_") and b is not None:
                    continue
                # A column that sums up any numbers is NaN.
                if name == "gate_backward_bias" and (b is None or x is not ordinary):
                    continue
                arguments = ddx, dy, x, b
                here = operator(*arguments, gate)
                there = operator(*(t if t is None else t.to(device) for t in arguments), gate)
                title = name + (", bias" if b is not None else "")
                different = sum(differing(h, t.cpu()) for h, t in zip(here, there, strict=True))
                counts[title] = counts.get(title, 0) + different
    return counts
