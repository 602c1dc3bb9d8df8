"""The operators behave as native ones in all that PyTorch does with an operator."""

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from gelu_kernels import functional, nn, reference

ops = torch.ops.gelu_kernels

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
close = {"rtol": 2e-6, "atol": 2e-6}  # float32 against float64
bf16_close = {"rtol": 2**-6, "atol": 2**-6}


def bias_gelu_reference(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return reference.gelu(x.double() + bias.double(), approximate)


def loss_and_gradients(f: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """f's value and the gradients of a weighted sum of it, from fresh leaves."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    y = f(*leaves)
    weights = torch.linspace(0.5, 1.5, y.numel(), device=y.device).view_as(y)
    (y * weights).sum().backward()
    return [y.detach().double(), *(t.grad.double() for t in leaves)]


def check(f: Callable[..., Tensor], expected: Callable[..., Tensor], *inputs: Tensor) -> None:
    ours = loss_and_gradients(f, *inputs)
    torch.testing.assert_close(
        ours, loss_and_gradients(expected, *(t.double() for t in inputs)), **close
    )


# Registration


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("biased", [False, True], ids=["x", "x+bias"])
@pytest.mark.parametrize(
    "op, like_x",
    [
        ("fused_gelu", 0),
        ("fused_bias_gelu", 0),
        ("gate_forward", 0),
        ("gate_backward", 1),
        ("gate_backward_bias", 1),
        ("gate_double_backward", 2),
    ],
)
def test_opcheck(op, like_x, biased, grad, dtype, device):
    if (op == "fused_gelu" and biased) or (op.endswith(("bias", "bias_gelu")) and not biased):
        pytest.skip("no such argument")
    x = torch.randn(3, 8, device=device).to(dtype)
    tensors = [torch.randn_like(x) for _ in range(like_x)] + [x]
    if biased:
        tensors.append(torch.randn(8, device=device).to(dtype))
    for t in tensors:
        t.requires_grad_(grad)
    if op.startswith("fused"):
        arguments, keywords = tuple(tensors), {"approximate": "tanh"}
    else:
        arguments, keywords = (*tensors, *([] if biased else [None]), "normal"), {}
    torch.library.opcheck(getattr(ops, op).default, arguments, keywords)


@pytest.mark.parametrize("shape", [(0, 8), (5, 1), (2, 3, 4, 8)], ids=str)
def test_opcheck_of_shapes_and_strides(shape, device):
    x = torch.randn(*shape, device=device, requires_grad=True)
    bias = torch.randn(shape[-1], device=device, requires_grad=True)
    for t in (x, x.transpose(0, 1), x[..., : shape[-1] // 2]):
        torch.library.opcheck(ops.fused_gelu.default, (t.detach().requires_grad_(),))
    torch.library.opcheck(ops.fused_bias_gelu.default, (x, bias))


def test_schemas_and_tags():
    assert str(ops.fused_gelu.default._schema) == (
        'gelu_kernels::fused_gelu(Tensor x, *, str approximate="none") -> Tensor'
    )
    assert str(ops.fused_bias_gelu.default._schema) == (
        'gelu_kernels::fused_bias_gelu(Tensor x, Tensor bias, *, str approximate="none") -> Tensor'
    )
    for op in (ops.gate_forward, ops.gate_backward, ops.gate_double_backward):
        assert torch.Tag.pointwise in op.default.tags
        assert torch.Tag.pt2_compliant_tag in op.default.tags


# Compilers


def everything(x: Tensor, bias: Tensor) -> Tensor:
    """Every public route, among operators that a compiler may fuse."""
    y = functional.gelu(x * 1.5)
    y = functional.bias_gelu(y, bias, approximate="tanh")
    y = ops.fused_gelu(y, approximate="sigmoid")
    y = ops.fused_bias_gelu(y - 0.5, bias)
    return nn.GELU("tanh")(y.transpose(0, 1))


def everything_reference(x: Tensor, bias: Tensor) -> Tensor:
    y = reference.gelu(x * 1.5)
    y = reference.gelu(y + bias, "tanh")
    y = reference.gelu(y, "sigmoid")
    y = reference.gelu(y - 0.5 + bias)
    return reference.gelu(y.transpose(0, 1), "tanh")


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(backend, dynamic, device):
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (6, 7, 9) if dynamic else (6,):
        x, bias = torch.randn(rows, 5, device=device), torch.randn(5, device=device)
        check(compiled, everything_reference, x, bias)


@pytest.mark.parametrize("approximate", reference.gates)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "half", "channels_last"])
def test_compiled_layouts(layout, approximate, device):
    torch._dynamo.reset()
    x = {
        "contiguous": lambda: torch.randn(6, 5),
        "transposed": lambda: torch.randn(5, 6).t(),
        "half": lambda: torch.randn(6, 10).chunk(2, -1)[1],
        "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }[layout]().to(device)
    bias = torch.randn(5, device=device)
    compiled = torch.compile(
        lambda x, bias: functional.bias_gelu(x, bias, approximate=approximate),
        fullgraph=True,
        backend="aot_eager",
    )
    assert compiled(x, bias).stride() == torch.empty_like(x).stride()
    check(compiled, lambda x, bias: bias_gelu_reference(x, bias, approximate), x, bias)


def test_the_graph_holds_our_operators(device):
    graphs = []

    def backend(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    torch.compile(functional.gelu, fullgraph=True, backend=backend)(torch.randn(3, device=device))
    assert any(node.target == ops.fused_gelu for node in graphs[0].graph.nodes)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("biased", [False, True])
def test_compiled_autograd(biased, device):
    inputs = [torch.randn(6, 5, device=device), torch.randn(5, device=device)][: 1 + biased]
    gelu = functional.bias_gelu if biased else functional.gelu

    def expected(x: Tensor, bias: Tensor | float = 0, approximate: str = "none") -> Tensor:
        return reference.gelu(x.double() + bias, approximate)

    torch._dynamo.reset()
    compiler = torch.compile(backend="aot_eager", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(compiler):
        check(gelu, expected, *inputs)
        check(gelu, expected, *(t + 1 for t in inputs))  # from its cache
        check(
            lambda *t: gelu(*t, approximate="sigmoid"),  # not from its cache
            lambda *t: expected(*t, approximate="sigmoid"),
            *inputs,
        )
        if biased:
            for alone in (0, 1):
                leaves = [t.clone() for t in inputs]
                leaves[alone].requires_grad_()
                gelu(*leaves).sum().backward()
                doubles = [t.detach().double() for t in leaves]
                doubles[alone].requires_grad_()
                expected(*doubles).sum().backward()
                torch.testing.assert_close(
                    leaves[alone].grad.double(), doubles[alone].grad, **close
                )


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec")
def test_export(device):
    class Everything(torch.nn.Module):
        def forward(self, x: Tensor, bias: Tensor) -> Tensor:
            return everything(x, bias)

    x, bias = torch.randn(6, 5, device=device), torch.randn(5, device=device)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(
        Everything(), (x, bias), dynamic_shapes=({0: rows}, None), strict=True
    )
    targets = {node.target for node in program.graph.nodes}
    assert targets & {ops.fused_gelu.default, ops.gate_forward.default}
    for rows in (6, 11):
        x = torch.randn(rows, 5, device=device)
        torch.testing.assert_close(
            program.module()(x, bias).double(),
            everything_reference(x.double(), bias.double()),
            **close,
        )
    assert {node.target for node in program.run_decompositions().graph.nodes} & {
        ops.gate_forward.default
    }


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_make_fx(tracing, device):
    x, bias = torch.randn(6, 5, device=device), torch.randn(5, device=device)

    def gradients(x: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        total = everything(x, bias).sum()
        return torch.autograd.grad(total, (x, bias))

    leaves = x.requires_grad_(), bias.requires_grad_()
    traced = make_fx(gradients, tracing_mode=tracing)(*leaves)
    assert ops.gate_backward_bias.default in {node.target for node in traced.graph.nodes}
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    expected = torch.autograd.grad(everything_reference(*doubles).sum(), doubles)
    for ours, e in zip(traced(*leaves), expected, strict=True):
        torch.testing.assert_close(ours.double(), e, **close)


# Overrides


class Log(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls.append(str(function))
        return function(*args, **(kwargs or {}))


def test_a_function_mode_sees_the_operators(device):
    x, bias = torch.randn(6, 5, device=device), torch.randn(5, device=device)
    with Log() as log:
        y = functional.gelu(x, approximate="tanh")
        z = functional.bias_gelu(x, bias, approximate="sigmoid")
    assert log.calls == ["gelu_kernels.fused_gelu", "gelu_kernels.fused_bias_gelu"]
    torch.testing.assert_close(y, reference.gelu(x, "tanh"), **close)
    torch.testing.assert_close(z.double(), bias_gelu_reference(x, bias, "sigmoid"), **close)


class Tagged(Tensor):
    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(str(function))
        return super().__torch_function__(function, types, args, kwargs)


def test_a_subclass_keeps_its_type(device):
    plain, bias = torch.randn(6, 5, device=device), torch.randn(5, device=device)
    x = plain.as_subclass(Tagged)
    Tagged.seen.clear()
    for y, expected in (
        (functional.gelu(x), reference.gelu(plain)),
        (functional.bias_gelu(x, bias), bias_gelu_reference(plain, bias).float()),
        (
            functional.bias_gelu(plain, bias.as_subclass(Tagged)),
            bias_gelu_reference(plain, bias).float(),
        ),
    ):
        assert type(y) is Tagged
        torch.testing.assert_close(y.as_subclass(Tensor), expected, **close)
    assert Tagged.seen[0] == "gelu_kernels.fused_gelu"
    assert Tagged.seen.count("gelu_kernels.fused_bias_gelu") == 2


# Modules


@pytest.mark.parametrize("approximate", reference.gates)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_gelu(approximate, bias, device):
    layer = nn.LinearGELU(7, 5, bias=bias, approximate=approximate, device=device)
    linear = torch.nn.Linear(7, 5, bias=bias, device=device, dtype=torch.float64)
    linear.load_state_dict(layer.state_dict())
    for shape in ((7,), (3, 7), (2, 3, 7)):
        x = torch.randn(shape, device=device)
        layer.zero_grad(), linear.zero_grad()
        check(layer, lambda x: reference.gelu(linear(x), approximate), x)
        for ours, expected in zip(layer.parameters(), linear.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.double(), expected.grad, **close)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_gelu_has_the_state_of_linear(bias, tmp_path):
    torch.manual_seed(1)
    ours = nn.LinearGELU(7, 5, bias=bias)
    torch.manual_seed(1)
    linear = torch.nn.Linear(7, 5, bias=bias)
    assert ours.state_dict().keys() == linear.state_dict().keys()
    for a, b in zip(ours.parameters(), linear.parameters(), strict=True):
        assert torch.equal(a, b)  # the same initialisation
    for source, target in (
        (nn.LinearGELU(7, 5, bias=bias), linear),
        (torch.nn.Linear(7, 5, bias=bias), ours),
    ):
        torch.save(source.state_dict(), tmp_path / "state")
        target.load_state_dict(torch.load(tmp_path / "state"))
        for a, b in zip(source.parameters(), target.parameters(), strict=True):
            assert torch.equal(a, b)


MODULES = {
    "GELU": lambda: nn.GELU("sigmoid"),
    "BiasGELU": lambda: nn.BiasGELU(5, approximate="tanh", dtype=torch.float64),
    "LinearGELU": lambda: nn.LinearGELU(5, 5, approximate="tanh", dtype=torch.float64),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_copied(name):
    module = MODULES[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    x = torch.randn(3, 5, dtype=torch.float64)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(other) is type(module) and repr(other) == repr(module)
        assert torch.equal(other(x), module(x))
    assert "approximate='" in repr(module)


def test_bias_gelu_module(device):
    module = nn.BiasGELU(5, approximate="tanh", device=device)
    assert list(module.state_dict()) == ["bias"]
    assert torch.equal(module.bias, torch.zeros(5, device=device))
    with torch.no_grad():
        module.bias.normal_()
    bias = module.bias.detach()
    check(
        module,
        lambda x: bias_gelu_reference(x, bias, "tanh"),
        torch.randn(3, 5, device=device),
    )
    assert module.bias.grad is not None
    module.reset_parameters()
    assert not module.bias.any()


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(compiled, device):
    torch._dynamo.reset()
    layer = nn.LinearGELU(7, 5, device=device)
    linear = torch.nn.Linear(7, 5, device=device, dtype=torch.float64)
    linear.load_state_dict(layer.state_dict())
    x = torch.randn(3, 7, device=device)
    call = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    with torch.autocast(device, torch.bfloat16):
        y = call(x)
    assert y.dtype == torch.bfloat16
    expected = reference.gelu(linear(x.double()))
    torch.testing.assert_close(y.double(), expected, **bf16_close)
    y.sum().backward()
    expected.sum().backward()
    for ours, e in zip(layer.parameters(), linear.parameters(), strict=True):
        assert ours.grad.dtype == torch.float32
        torch.testing.assert_close(ours.grad.double(), e.grad, rtol=2**-5, atol=2**-5)


def test_autocast_leaves_gelu_alone(device):
    x = torch.randn(3, 7, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert functional.gelu(x).dtype == torch.float32
        assert functional.bias_gelu(x, x[0]).dtype == torch.float32


# Threads


def test_calls_from_many_threads(device):
    """Forward and backward, on shared and on own tensors, while others do the same."""
    shared, bias = torch.randn(50, 700, device=device), torch.randn(700, device=device)
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        try:
            generator = torch.Generator(device).manual_seed(seed)
            x = torch.randn(40, 700, device=device, generator=generator)
            barrier.wait()
            for _ in range(5):
                for t in (x, shared):
                    check(functional.bias_gelu, bias_gelu_reference, t, bias)
                    check(functional.gelu, lambda t: reference.gelu(t.double()), t)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


OPENMP_RUNTIMES = r"""
import re
import torch
from gelu_kernels import functional

functional.gelu(torch.randn(1_000_000))
with open("/proc/self/maps") as maps:
    print(*set(re.findall(r"\S*/lib[gi]?omp\d*[-.][^\s]*", maps.read())), sep="\n")
"""


def test_one_openmp_runtime():
    """A second one has threads of its own, which torch.set_num_threads does not reach. In a process
    without scikit-learn, which brings one."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    result = subprocess.run(
        [sys.executable, "-c", OPENMP_RUNTIMES], capture_output=True, text=True, check=True
    )
    assert len(result.stdout.split()) == 1, result.stdout


COUNT_THREADS = """
import os
import torch
from gelu_kernels import functional

x, bias = torch.randn(1000, 1000), torch.randn(1000)


def count(threads):
    torch.set_num_threads(threads)
    functional.gelu(x)
    torch.ops.gelu_kernels.gate_backward_bias(x, x, bias, "normal")
    return len(os.listdir("/proc/self/task"))


one = count(1)
assert count(1) == one
assert count(4) == one + 3, (one, count(4))
"""


def test_set_num_threads_is_respected():
    """The threads that a new process gains are those that were asked for."""
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    result = subprocess.run([sys.executable, "-c", COUNT_THREADS], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
