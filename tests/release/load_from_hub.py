"""Loads a repository of kernels by `kernels`, after others that cannot be loaded, whose errors it
prints, and checks what it computes."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import grad


def check(
    ours: Callable[..., Tensor], formula: Callable[..., Tensor], *shapes: tuple[int, ...]
) -> None:
    """The values and all gradients, by the formula in float64."""
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 2e-6)):
        tensors = [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]
        doubles = [t.detach().double().requires_grad_() for t in tensors]
        y, expected = ours(*tensors), formula(*doubles)
        dy = torch.randn_like(y)
        found = y, *grad(y, tensors, dy)
        right = expected, *grad(expected, doubles, dy.double())
        for a, b in zip(found, right, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=10 * tolerance)


def main(hub: Path, *broken: Path) -> None:
    from kernels import get_local_kernel

    for folder in broken:
        try:
            get_local_kernel(folder)
        except ImportError as error:
            print(error)
    kernel = get_local_kernel(hub)

    from gelu_kernels import nn, reference

    assert kernel.nn is nn
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "gelu_kernels":
            assert Path(module.__file__).is_relative_to(hub), module

    torch.manual_seed(0)
    x, bias = (64, 40), (40,)
    check(kernel.functional.gelu, reference.normal, x)
    check(kernel.functional.bias_gelu, lambda x, b: reference.normal(x + b), x, bias)
    check(kernel.functional.swiglu, lambda x, up: reference.logistic(x) * up, x, x)
    print("right")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
