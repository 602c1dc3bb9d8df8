"""Whether what is timed is right: against float64, before it is timed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bench.check_random import check_soi
from bench.sides import Side
from bench.workloads import Inputs, Workload
from gelu_kernels import reference

PIECE = 2**22  # elements, of which float64 makes many temporary ones

Check = Callable[[str, Side], None]  # computes a pass; raises AssertionError


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


def checker(workload: Workload, inputs: Inputs) -> Check:
    if workload.op == "soi_map":
        return partial(check_soi, workload, inputs)
    exact = expected(workload, inputs)
    return lambda label, side: check_gate(label, side.call(label, inputs)(), exact)
