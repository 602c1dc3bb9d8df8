"""TorchScript: torch.jit.trace records the operators, torch.jit.script refuses our modules with an
error that says so, and scripted code may call the operators."""

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import Module

from gelu_kernels import nn
from tests.calls import SEED
from tests.cases import each
from tests.pytorch.module_cases import CASES, SHAPE, Case, every_case
from tests.replace.equivalence.outcomes import MODELS, MODES, replace
from tests.replace.replacements import error

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    # Layers compare sizes before they are fused; these do not depend on the number of rows.
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean"),
]
MAKERS = [make for make, *_ in MODELS.values()]


def saved_and_loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def traced(module: Module, example: Tensor) -> torch.jit.ScriptModule:
    """Without torch's check, which runs the module again and draws other masks."""
    return saved_and_loaded(torch.jit.trace(module, example, check_trace=False))


def with_gradient(call: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    torch.manual_seed(SEED)
    y = call(x)
    return y, *torch.autograd.grad(y.square().sum(), x)


@each(case=CASES, is_training=[True, False])
def test_trace(case: Case, is_training: bool) -> None:
    """Every call of the trace gives the module's bits, also for more rows and other masks. A trace
    saves codes of derivatives if its example requires a gradient."""
    module = case().train(is_training)
    trace = traced(module, torch.randn(SHAPE, requires_grad=True))
    for _ in range(3):  # the executor optimises the second call
        x = torch.randn(500, SHAPE[1], requires_grad=True)
        found, expected = (with_gradient(call, x) for call in (trace, module))
        assert all(map(torch.equal, found, expected))


@each(make=MAKERS, mode=MODES)
def test_trace_of_a_replaced_model(make: Callable[[], Module], mode: str) -> None:
    model, x = make().double(), torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    expected = with_gradient(model, x)
    replace(model, mode)
    trace = traced(model, torch.randn(4, 6, dtype=torch.float64))
    assert "gelu_kernels::" in str(trace.inlined_graph)
    assert error(with_gradient(trace, x), expected) < 1e-12


@every_case
def test_script_says_what_to_use_instead(case: Case) -> None:
    module = case()
    message = (
        f"torch.jit.script does not compile {case.name} of gelu_kernels.nn: "
        "use torch.export or torch.jit.trace"
    )
    for model in (module, torch.nn.Sequential(torch.nn.Linear(6, 6), module)):
        with pytest.raises(TypeError, match=message):
            torch.jit.script(model)


@each(make=MAKERS, mode=MODES)
def test_script_of_a_replaced_model(make: Callable[[], Module], mode: str) -> None:
    """Refused while replaced, compiled again once restored."""
    model, x = make(), torch.randn(SHAPE)
    replacement = replace(model, mode)
    with pytest.raises(TypeError, match="replaced by gelu_kernels: restore"):
        torch.jit.script(model)
    replacement.restore()
    assert torch.equal(torch.jit.script(model)(x), model(x))


def test_scripted_code_calls_operators() -> None:
    class Block(Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.ops.gelu_kernels.fused_gelu(self.linear(x), approximate="tanh")
            return torch.ops.gelu_kernels.soi_map(y)

    block, x = Block(), torch.randn(4, 6, requires_grad=True)
    script = saved_and_loaded(torch.jit.script(block))
    torch.manual_seed(SEED)
    expected = nn.SOIMap()(nn.GELU("tanh")(block.linear(x)))
    torch.manual_seed(SEED)
    assert torch.equal(script(x), expected)
