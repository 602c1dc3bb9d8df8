"""Whether what is timed is right: against float64, before it is timed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.sides import DISTRIBUTIONS
from bench.workloads import Inputs, Workload
from gelu_kernels import reference

PIECE = 2**22  # elements, of which float64 makes many temporary ones
SAMPLE = 2**18  # elements of a random mask

Check = Callable[[str, object], None]  # of a pass and its result; raises AssertionError


@dataclass(frozen=True)
class Expected:
    y: Tensor
    gradients: tuple[Tensor, ...]


def expected(workload: Workload, inputs: Inputs) -> Expected:
    """The value and the gradients of the operands in float64."""
    rows, columns = workload.shape
    step = max(1, PIECE // columns)
    y, dx = (torch.empty(rows, columns, dtype=torch.float64, device=inputs.x.device) for _ in "yd")
    dbias = torch.zeros(columns, dtype=torch.float64, device=inputs.x.device)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        x = inputs.x[piece].double()
        x = (x if inputs.bias is None else x + inputs.bias.double()).requires_grad_()
        y[piece] = value = reference.gates[workload.gate](x)
        (dx[piece],) = torch.autograd.grad(value, x, inputs.dy[piece].double())
        dbias += dx[piece].sum(0)
    return Expected(y.detach(), (dx,) if inputs.bias is None else (dx, dbias))


def assert_close(result: Tensor, exact: Tensor) -> None:
    """To a few roundings: the bound has to admit PyTorch, whose F.gelu has no tail in float32 and
    rounds more than once in 16 bits. A bias gradient is a sum over many rows."""
    eps = torch.finfo(result.dtype).eps
    atol = 8 * eps * max(1.0, exact.abs().max().item())
    torch.testing.assert_close(result.double(), exact, rtol=8 * eps, atol=atol)


def check_gate(label: str, result: object, exact: Expected) -> None:
    if label == "forward":
        results, wanted = (result,), (exact.y,)
    else:
        results = result if isinstance(result, tuple) else (result,)
        wanted = exact.gradients
    for tensor, right in zip(results, wanted, strict=True):
        assert_close(tensor.detach(), right)


def check_soi(workload: Workload, inputs: Inputs, label: str, result: object) -> None:
    """What is kept is kept exactly, the rest is zero, and as much is kept as should be."""
    source = inputs.x if label == "forward" else inputs.dy
    (result,) = result if isinstance(result, tuple) else (result,)
    result = result.detach()
    kept = result != 0
    if not torch.equal(result, torch.where(kept, source, 0)):
        raise AssertionError("the SOI map keeps an element or drops it")
    x, kept = inputs.x.flatten()[:SAMPLE].double(), kept.flatten()[:SAMPLE].double()
    p = DISTRIBUTIONS[workload.gate](x)
    for side in (x < 0, x > 0):
        excess = (kept - p)[side].sum().abs()
        if excess > 6 * (p * (1 - p))[side].sum().sqrt() + 1:
            raise AssertionError(f"the SOI map keeps {excess:.0f} elements too many or too few")


def checker(workload: Workload, inputs: Inputs) -> Check:
    if workload.op == "soi_map":
        return lambda label, result: check_soi(workload, inputs, label, result)
    exact = expected(workload, inputs)
    return lambda label, result: check_gate(label, result, exact)
