"""Fusion by Inductor, as gelu_kernels.compile asks for it: where it happens, and that all but the
number of kernels stays as it is. What the fused formulas are worth: test_fused_accuracy.py."""

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
from tests.compile.comparison import bf16_close, check, value_and_gradients
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
    """How many loops over memory Inductor writes for a function, beside the calls of operators."""
    torch.compiler.reset()
    metrics.reset()
    torch.compile(f, fullgraph=True)(*inputs)
    return metrics.generated_kernel_count


# Fused graphs


def between(x: Tensor) -> Tensor:
    return functional.gelu(x * 1.5) + 1


def test_one_kernel_in_place_of_two_and_a_call(fusion: None) -> None:
    x = torch.randn(40, 33)
    assert kernels(between, x) == 1
    disable_fusion()
    assert kernels(between, x) == 2


def test_caches_on_disk_tell_fused_code_from_other() -> None:
    """The same function compiled anew: first each way for the first time, then from the caches."""
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


APPROXIMATIONS = [a for a in APPROXIMATE.values() if a]


@pytest.mark.parametrize(
    "approximate",
    [APPROXIMATIONS[0], *(pytest.param(a, marks=pytest.mark.slow) for a in APPROXIMATIONS[1:])],
)
def test_training(approximate: str, fusion: None) -> None:
    def f(x: Tensor, bias: Tensor) -> Tensor:
        y = functional.gelu(x * 1.5, approximate=approximate)
        return functional.bias_gelu(y, bias, approximate=approximate) * 2

    def expected(x: Tensor, bias: Tensor) -> Tensor:
        return bias_gelu_reference(reference.gelu(x * 1.5, approximate), bias, approximate) * 2

    compiled = torch.compile(f, fullgraph=True, dynamic=True)
    for rows in (6, 7, 300):
        check(compiled, expected, torch.randn(rows, 5), torch.randn(5))


@pytest.mark.parametrize("shape", [(7,), (0, 5)], ids=str)
def test_shapes(shape: tuple[int, ...], fusion: None) -> None:
    compiled = torch.compile(functional.bias_gelu, fullgraph=True)
    check(compiled, bias_gelu_reference, torch.randn(shape), torch.randn(shape[-1]))


def test_scalars(fusion: None) -> None:
    compiled = torch.compile(functional.gelu, fullgraph=True)
    check(compiled, lambda x: reference.gelu(x.double()), torch.tensor(-0.3))


@pytest.mark.parametrize("layout", ["second half", "permuted", "one row"])
def test_layouts(layout: str, fusion: None) -> None:
    x = LAYOUTS[layout](torch.randn, (5, 6, 7))
    bias = torch.randn(x.size(-1))

    def f(x: Tensor, bias: Tensor) -> Tensor:
        return functional.bias_gelu(x, bias)

    assert torch.compile(f, fullgraph=True)(x, bias).stride() == f(x, bias).stride()
    check(torch.compile(f, fullgraph=True), bias_gelu_reference, x, bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype, fusion: None) -> None:
    inputs = torch.randn(50, 33).to(dtype), torch.randn(33).to(dtype)
    ours = value_and_gradients(torch.compile(functional.bias_gelu, fullgraph=True), inputs)
    expected = value_and_gradients(bias_gelu_reference, [t.double() for t in inputs])
    for result, e in zip(ours, expected, strict=True):
        torch.testing.assert_close(result, e, **bf16_close)


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
