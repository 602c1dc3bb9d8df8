"""Fusion by Inductor with gelu_kernels.compile.enable_fusion: where it happens, and that only
the number of kernels changes. Accuracy of the fused formulas: test_fused_accuracy.py."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import metrics
from torch._inductor.utils import run_and_get_code

from gelu_kernels import functional, reference
from gelu_kernels.compile import disable_fusion, enable_fusion
from tests.calls import APPROXIMATE
from tests.compile.comparison import bf16_close, check, close
from tests.layouts import LAYOUTS

ops = torch.ops.gelu_kernels


def bias_gelu_reference(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return reference.gelu(x.double() + bias.double(), approximate)


@pytest.fixture
def fusion() -> Iterator[None]:
    torch.compiler.reset()
    enable_fusion()
    yield
    disable_fusion()
    torch.compiler.reset()


def kernels(f: Callable[..., object], *inputs: Tensor) -> int:
    """How many loops over memory Inductor writes for a function, without calls of operators."""
    torch.compiler.reset()
    metrics.reset()
    torch.compile(f, fullgraph=True)(*inputs)
    return metrics.generated_kernel_count


# Fused graphs


def between(x: Tensor) -> Tensor:
    return functional.gelu(x * 1.5) + 1


def test_one_kernel_in_place_of_two_and_a_call() -> None:
    """Also from the caches on disk, which tell fused code from other code."""
    x = torch.randn(40, 33)
    try:
        with torch.compiler.config.patch(cache_key_tag=str(uuid4())):  # no code from earlier runs
            for hits in (0, 1):
                for switch, expected in ((disable_fusion, 2), (enable_fusion, 1)):
                    switch()
                    counters.clear()
                    assert kernels(between, x) == expected
                    assert counters["inductor"]["fxgraph_cache_hit"] == hits
    finally:
        disable_fusion()


def test_the_tag_of_others_stays() -> None:
    with torch.compiler.config.patch(cache_key_tag="a tag"):
        enable_fusion()
        enable_fusion()
        tag = torch.compiler.config.cache_key_tag
        assert tag.startswith("a tag gelu_kernels.compile:") and tag.count("gelu_kernels") == 1
        disable_fusion()
        assert torch.compiler.config.cache_key_tag == "a tag"
        disable_fusion()
        assert torch.compiler.config.cache_key_tag == "a tag"


def calls(f: Callable[..., Tensor], *inputs: Tensor) -> set[str]:
    """The operators of this package that the code calls, forward and backward."""
    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True)

    def run() -> None:
        y = compiled(*inputs)
        if y.requires_grad:
            y.sum().backward()

    _, sources = run_and_get_code(run)
    assert sources
    return {name for name in dir(ops) for code in sources if f"gelu_kernels.{name}." in code}


def test_what_is_called(fusion: None) -> None:
    x, bias = torch.randn(6, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    assert not calls(functional.bias_gelu, x, bias.detach())
    assert not calls(torch.func.hessian(lambda x: functional.gelu(x).sum()), x[0].detach())
    assert calls(functional.bias_gelu, x, bias) == {"gate_backward_bias"}
    assert calls(functional.soi_map, x.detach()) == {"random_seed", "soi_forward"}
    disable_fusion()
    assert calls(functional.gelu, x) == {"gate_forward", "gate_backward"}


def test_backward_is_one_kernel_too(fusion: None) -> None:
    def gradient(x: Tensor, dy: Tensor) -> Tensor:
        _, vjp = torch.func.vjp(lambda x: functional.gelu(x * 1.5), x)
        return vjp(dy * 2)[0]

    x, dy = torch.randn(2, 40, 33)
    assert kernels(gradient, x, dy) == 1
    disable_fusion()
    assert kernels(gradient, x, dy) == 3


# Nothing else changes


def test_training(fusion: None) -> None:
    """With every formula, and for other numbers of rows."""
    approximations = [a for a in APPROXIMATE.values() if a]

    def f(x: Tensor, bias: Tensor) -> Tensor:
        for a in approximations:
            x = functional.bias_gelu(functional.gelu(x * 1.5, approximate=a), bias, approximate=a)
        return x * 2

    def expected(x: Tensor, bias: Tensor) -> Tensor:
        for a in approximations:
            x = bias_gelu_reference(reference.gelu(x * 1.5, a), bias, a)
        return x * 2

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for rows in (6, 7, 300):
        check(compiled, expected, torch.randn(rows, 5), torch.randn(5))


def test_shapes_layouts_and_dtypes(fusion: None) -> None:
    """As one graph of many calls, which compiles faster."""
    layouts = [
        LAYOUTS[name](torch.randn, (5, 6, 7)) for name in ("second half", "permuted", "one row")
    ]
    inputs = [torch.randn(7), torch.randn(0, 5), *layouts]
    inputs += [torch.randn(50, 33, dtype=dtype) for dtype in (torch.bfloat16, torch.float64)]
    leaves = [(x, torch.randn(x.size(-1), dtype=x.dtype)) for x in inputs]
    number = torch.tensor(-0.3, requires_grad=True)
    for pair in leaves:
        for t in pair:
            t.requires_grad_()

    @torch.compile(fullgraph=True)
    def compiled(number: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        return [functional.gelu(number), *(functional.bias_gelu(*pair) for pair in pairs)]

    results = compiled(number, leaves)
    operands = [(number, torch.zeros(())), *leaves]
    for y, (x, bias) in zip(results, operands, strict=True):
        wide = [t.detach().double().requires_grad_() for t in (x, bias)]
        expected = bias_gelu_reference(*wide)
        given = [t for t in (x, bias) if t.requires_grad]
        dy = torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).view(y.shape)
        gradients = torch.autograd.grad(y, given, dy.to(y.dtype), retain_graph=True)
        theirs = torch.autograd.grad(expected, wide[: len(given)], dy.to(y.dtype).double())
        tolerance = bf16_close if x.dtype == torch.bfloat16 else close
        ours = [y, *gradients]
        assert y.stride() == functional.bias_gelu(x, bias).stride() if x.dim() else not y.dim()
        torch.testing.assert_close([t.double() for t in ours], [expected, *theirs], **tolerance)


def test_autocast(fusion: None) -> None:
    x, bias = torch.randn(6, 5).bfloat16(), torch.randn(5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.compile(functional.bias_gelu, fullgraph=True)(x, bias)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), bias_gelu_reference(x, bias), **bf16_close)
    y.sum().backward()
    assert bias.grad.dtype == torch.float32


def test_errors(fusion: None) -> None:
    x = torch.randn(6, 5)
    for arguments, approximate, message in (
        ((x, x[0, :2]), "none", "fused_bias_gelu: bias must be as long"),
        ((x.int(), x[0]), "none", "fused_bias_gelu: x must be float64"),
        ((x, x[0]), "erf", "fused_bias_gelu: approximate must be one of"),
    ):
        with pytest.raises(RuntimeError, match=message):
            compiled = torch.compile(functional.bias_gelu, fullgraph=True)
            compiled(*arguments, approximate=approximate)
