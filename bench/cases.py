"""What is timed: our calls and, under the same title, what PyTorch has for the same.

All is checked against the reference in float64 before it is timed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import functional, reference

Gelu = Callable[..., Tensor]


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def eager(approximate: str) -> Gelu:
    """What one writes without this package."""
    if approximate == "sigmoid":
        return quick_gelu
    return lambda x: F.gelu(x, approximate=approximate)


@dataclass
class Case:
    """One pass through a function, timed as `ours` and as `torch`."""

    title: str
    elements: int
    calls: dict[str, Callable[[], object]]


def forward(f: Gelu, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    return lambda: f(*inputs)


def forward_with_graph(f: Gelu, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    return lambda: f(*leaves)


def backward(f: Gelu, inputs: tuple[Tensor, ...], dy: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """The backward pass alone, over one graph that is kept."""
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    y = f(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def forward_backward(f: Gelu, inputs: tuple[Tensor, ...], dy: Tensor) -> Callable[[], object]:
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    return lambda: torch.autograd.grad(f(*leaves), leaves, dy)


def exact(inputs: tuple[Tensor, ...], dy: Tensor, approximate: str) -> list[Tensor]:
    """The value and the gradients of the inputs, in float64."""
    doubles = [t.double().requires_grad_() for t in inputs]
    y = reference.gelu(sum(doubles), approximate)
    return [y.detach(), *torch.autograd.grad(y, doubles, dy.double())]


def assert_close(result: Tensor, exact: Tensor) -> None:
    """To a few roundings, so that nothing wrong is timed.

    The bound has to admit PyTorch, whose F.gelu has no tail in float32 and rounds more than once in
    16 bits.
    """
    eps = torch.finfo(result.dtype).eps
    # A bias gradient is a sum over many rows.
    atol = 8 * eps * max(1.0, exact.abs().max().item())
    torch.testing.assert_close(result.double(), exact, rtol=8 * eps, atol=atol)


def check(f: Gelu, inputs: tuple[Tensor, ...], dy: Tensor, approximate: str) -> None:
    leaves = [t.clone().requires_grad_() for t in inputs]
    y = f(*leaves)
    results = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
    for result, e in zip(results, exact(inputs, dy, approximate), strict=True):
        assert_close(result, e)


def checked_pairs(approximate: str, inputs: tuple[Tensor, ...], dy: Tensor) -> dict[str, Gelu]:
    """Ours and PyTorch's, for x or for x and bias."""
    theirs = eager(approximate)
    if len(inputs) == 1:
        pair = {
            "ours": lambda x: functional.gelu(x, approximate),
            "torch": theirs,
        }
    else:
        pair = {
            "ours": lambda x, bias: functional.bias_gelu(x, bias, approximate),
            "torch": lambda x, bias: theirs(x + bias),
        }
    for f in pair.values():
        check(f, inputs, dy, approximate)
    return pair


def throughput() -> Iterator[Case]:
    """2^18 elements, in cache; use one thread."""
    rows, columns = 256, 1024
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(0)
        x, dy = (torch.randn(rows, columns, generator=generator).to(dtype) for _ in range(2))
        bias = torch.randn(columns, generator=generator).to(dtype)
        for inputs, what in (((x,), "gelu"), ((x, bias), "bias_gelu")):
            for approximate in reference.gates:
                pair = checked_pairs(approximate, inputs, dy)
                title = f"{name:8} {what:9} {approximate:7}"
                passes = {
                    "forward": {k: forward(f, inputs) for k, f in pair.items()},
                    "backward": {k: backward(f, inputs, dy) for k, f in pair.items()},
                }
                for label, calls in passes.items():
                    yield Case(f"{title} {label}", x.numel(), calls)


def overhead() -> Iterator[Case]:
    """16 floats; use one thread, and turn oneDNN off, which takes 5 us for F.gelu of any size."""
    x, dy = torch.randn(16), torch.ones(16)
    pair = {"ours": functional.gelu, "torch": F.gelu}
    for f in pair.values():
        check(f, (x,), dy, "none")
    yield Case("forward", 1, {k: forward(f, (x,)) for k, f in pair.items()})
    yield Case("forward, with grad", 1, {k: forward_with_graph(f, (x,)) for k, f in pair.items()})
    yield Case("forward + backward", 1, {k: forward_backward(f, (x,), dy) for k, f in pair.items()})
