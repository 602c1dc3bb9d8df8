"""The workloads: an operator on inputs of a size and dtype, and the bytes that it must move."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.operators import OPERATORS
from gelu_kernels.operators.table import core
from gelu_kernels.operators.types import PublicOperator, Shape

PASSES = ("forward", "backward", "both")
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
    elements: int  # of the result

    @property
    def operator(self) -> PublicOperator:
        return OPERATORS[self.op]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns: for a power of two as near to a square as the columns allow."""
        columns = math.gcd(self.elements, MOST_COLUMNS)
        while columns > 1 and columns * columns > self.elements:
            columns //= 2
        return self.elements // columns, columns

    @property
    def shapes(self) -> list[Shape]:
        """Of the operands."""
        inputs = self.operator.inputs
        return [inputs[name].shape(self.shape) for name in self.operator.operands]

    @property
    def bytes(self) -> int:
        """Of the result."""
        return self.elements * DTYPES[self.dtype].itemsize

    def bytes_moved(self, label: str) -> float:
        """By a pass."""
        if label == "both":
            return self.bytes_moved("forward") + self.bytes_moved("backward")
        op = self.operator
        without = tuple(name for name in ("bias", "weight") if name not in op.operands)
        without += (*op.single, *(f"d{name}" for name in op.single))
        itemsize = DTYPES[self.dtype].itemsize
        return core(getattr(op, label)).bytes_moved(self.shape, itemsize, without)


@dataclass(frozen=True)
class Inputs:
    operands: tuple[Tensor, ...]
    dy: Tensor

    def leaves(self) -> tuple[Tensor, ...]:
        """The operands for autograd; no copies."""
        return tuple(t.detach().requires_grad_() for t in self.operands)

    def copy(self) -> "Inputs":
        return Inputs(tuple(t.clone() for t in self.operands), self.dy)


def make_inputs(workload: Workload, device: str) -> Inputs:
    *operands, dy = (
        torch.randn(shape, device=device, dtype=DTYPES[workload.dtype])
        for shape in (*workload.shapes, workload.shape)
    )
    if "scale" in workload.operator.operands:
        operands[-1] = operands[-1].abs() + 0.5
    return Inputs(tuple(operands), dy)
