"""Checks an operator without random numbers: all of its results, against float64."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.operators import exact_gate
from bench.sides import Side
from bench.workloads import Inputs, Workload
from gelu_kernels import reference
from gelu_kernels.operators.types import Extent
from gelu_kernels.operators.workloads import formula_of

PIECE = 2**22  # elements checked at a time: float64 needs many temporaries


@dataclass(frozen=True)
class Expected:
    y: Tensor
    gradients: tuple[Tensor, ...]

    def results(self, label: str) -> tuple[Tensor, ...]:
        return (self.y,) if label == "forward" else self.gradients


def expected(workload: Workload, inputs: Inputs) -> Expected:
    """The value and the gradients of the operands in float64. For dropout, as if all were kept."""
    rows, columns = workload.shape
    step = max(1, PIECE // columns)
    gate = workload.gate
    formula = formula_of(
        workload.operator,
        exact_gate(gate),
        reference.DISTRIBUTIONS[gate],
        lambda y, p: y / (1 - p),
        reference.clamp,
    )
    extents = [workload.operator.inputs[name] for name in workload.operator.operands]
    y = torch.empty_like(inputs.dy, dtype=torch.float64)
    gradients = tuple(torch.zeros_like(t, dtype=torch.float64) for t in inputs.operands)
    for start in range(0, rows, step):
        piece = slice(start, start + step)

        def parts(operands: tuple[Tensor, ...], piece: slice = piece) -> list[Tensor]:
            serve_all = Extent.COLUMNS, Extent.NUMBER  # rows
            pairs = zip(operands, extents, strict=True)
            return [t if extent in serve_all else t[piece] for t, extent in pairs]

        leaves = [t.double().requires_grad_() for t in parts(inputs.operands)]
        y[piece] = value = formula(*leaves)
        found = torch.autograd.grad(value, leaves, inputs.dy[piece].double())
        for part, gradient in zip(parts(gradients), found, strict=True):
            part.add_(gradient)
    return Expected(y.detach(), gradients)


def ulp(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """The spacing of numbers at these; below the normal ones, of the smallest."""
    number = torch.finfo(dtype)
    _, exponent = torch.frexp(exact.abs().clamp(min=number.tiny))
    return torch.ldexp(torch.full_like(exact, number.eps), exponent - 1)


def assert_close(result: Tensor, exact: Tensor, terms: float = 1) -> float:
    """Within a few roundings: the bound must admit PyTorch, whose F.gelu drops the tail in float32
    and rounds more than once in 16 bits. Each element is a sum of `terms` terms, which may cancel;
    their errors add up like a random walk. Where F is close to 1, autograd's F (1 - F) has more.

    Returns the largest error in ULP."""
    assert result.shape == exact.shape, f"has the shape {tuple(result.shape)}"
    eps = torch.finfo(result.dtype).eps
    largest = torch.linalg.vector_norm(exact, torch.inf).item()
    atol = 8 * eps * max(1.0, largest, 2 * math.sqrt(terms) if terms > 1 else 0)
    pieces = (t.flatten().split(PIECE) for t in (result, exact))
    worst = 0.0
    for one, right in zip(*pieces, strict=True):
        torch.testing.assert_close(one.double(), right, rtol=8 * eps, atol=atol)
        worst = max(worst, float(((one - right).abs() / ulp(right, result.dtype)).max()))
    return worst


def check_exact(exact: Expected, inputs: Inputs, label: str, side: Side) -> float:
    """The largest error in ULP, without sums, which cancel."""
    errors = [0.0]
    for tensor, right in zip(side.results(label, inputs), exact.results(label), strict=True):
        terms = inputs.dy.numel() / tensor.numel()
        error = assert_close(tensor.detach(), right, terms)
        if terms <= 1:
            errors.append(error)
    return round(max(errors), 3)
