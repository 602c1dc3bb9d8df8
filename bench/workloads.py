"""What is measured: an operator on inputs of a size and dtype, and the bytes that it must move."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gelu_kernels import reference

OPS = ("gelu", "bias_gelu", "soi_map")
PASSES = ("forward", "backward", "both")
GATES = tuple(reference.gates)
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
}
MOST_COLUMNS = 4096


@dataclass(frozen=True)
class Workload:
    op: str
    gate: str
    dtype: str
    elements: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns: for a power of two as near to a square as the columns allow."""
        columns = math.gcd(self.elements, MOST_COLUMNS)
        while columns > 1 and columns * columns > self.elements:
            columns //= 2
        return self.elements // columns, columns

    @property
    def bytes(self) -> int:
        """Those of x."""
        return self.elements * DTYPES[self.dtype].itemsize

    def bytes_moved(self, label: str) -> int:
        """By a pass: each input read once, each result written once."""
        bias = self.shape[1] * DTYPES[self.dtype].itemsize if self.op == "bias_gelu" else 0
        mask = self.elements // 8 if self.op == "soi_map" else 0
        forward = 2 * self.bytes + bias + mask  # x, bias; y, mask
        backward = (3 * self.bytes if mask == 0 else 2 * self.bytes) + 2 * bias + mask
        return {"forward": forward, "backward": backward, "both": forward + backward}[label]


@dataclass(frozen=True)
class Inputs:
    x: Tensor
    bias: Tensor | None
    dy: Tensor

    @property
    def operands(self) -> tuple[Tensor, ...]:
        return (self.x,) if self.bias is None else (self.x, self.bias)

    def leaves(self) -> tuple[Tensor, ...]:
        """The operands for autograd; no copies."""
        return tuple(t.detach().requires_grad_() for t in self.operands)


def make_inputs(workload: Workload, device: str) -> Inputs:
    rows, columns = workload.shape
    dtype = DTYPES[workload.dtype]
    x, dy = (torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2))
    biased = workload.op == "bias_gelu"
    return Inputs(x, torch.randn(columns, device=device, dtype=dtype) if biased else None, dy)
