"""Products of quantised operands in float64, with the gradients that training in eight bits has."""

from collections.abc import Callable

import torch
from torch import Tensor


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, of_gradients: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def product(a: Tensor, b: Tensor, along_rows: Callable[[Tensor], Tensor]) -> Tensor:
    """a times the transpose of b, rounded to bfloat16. Each of the three products takes operands
    that are quantised along the dimension it sums over; autograd transposes them in a gradient."""

    def along_columns(t: Tensor) -> Tensor:
        return along_rows(t.t()).t()

    to_a, to_b = a @ along_columns(b).t(), along_columns(a) @ b.t()
    if to_a.requires_grad:
        to_a.register_hook(along_rows)
    to_b.register_hook(along_columns)
    y = StraightThrough.apply(to_a + to_b, along_rows(a) @ along_rows(b).t())
    return y.bfloat16().double()


def spread(*shape: int) -> Tensor:
    """Rows and columns of many magnitudes: a block across them loses the small numbers."""
    rows, columns = (torch.exp2(torch.randint(-20, 1, (size,)).float()) for size in shape[-2:])
    return torch.randn(shape) * rows.unsqueeze(1) * columns


def assert_near(results: list[Tensor], expected: list[Tensor]) -> None:
    """In 99 % of the rows and columns to 0.001 of the norm, and in each to 0.1: a product's sum in
    float32 may round to the next number in bfloat16, and one number may be most of a row."""
    for result, of_float64 in zip(results, expected, strict=True):
        apart = result.double() - of_float64.bfloat16().double()
        for dim in range(-min(result.dim(), 2), 0):
            error, size = apart.norm(dim=dim), of_float64.norm(dim=dim)
            assert (error <= 0.1 * size).all()
            assert (error <= 0.001 * size).double().mean() >= 0.99
