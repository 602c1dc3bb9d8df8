"""Models exported to ONNX as in docs/guide/compile.md, run by onnxruntime, compared with float64.

The decompositions alone, and what has none: test_decompositions.py.
"""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import decompositions, functional, nn, reference, replace_activations
from tests.calls import GATES, AsModule
from tests.oracles.oracle import VALUE
from tests.oracles.oracle import reference as exact

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")

# 16 ULP of 1, for a few roundings and a matrix product
CLOSE = {"rtol": 2e-6, "atol": 2e-6}


def to_onnx(model: torch.nn.Module, *example: Tensor) -> torch.onnx.ONNXProgram:
    """With a dynamic number of rows."""
    shapes, rows = torch.export.ShapesCollection(), torch.export.Dim("rows")
    for tensor in example:
        shapes[tensor] = {0: rows}
    program = torch.export.export(model.eval(), example, dynamic_shapes=shapes)
    program = program.run_decompositions(decompositions())
    return torch.onnx.export(program, dynamo=True, verbose=False)


def run(program: torch.onnx.ONNXProgram, *inputs: Tensor) -> list[Tensor]:
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    results = session.run(None, {n: t.numpy() for n, t in zip(names, inputs, strict=True)})
    return [torch.from_numpy(y) for y in results]


def operators(program: torch.onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str
)
def test_error_of_a_gate(dtype: torch.dtype) -> None:
    """Within 4 eps abs(x) for the eps of float32, and half a unit of a 16-bit result."""
    x = torch.linspace(-20, 20, 10001).to(dtype)
    gates = AsModule(lambda x: [functional.gate(x, gate=gate) for gate in GATES])
    results = run(to_onnx(gates, x[:3]), x)
    half_unit = torch.finfo(dtype).eps / 2 * (dtype == torch.float16)
    for gate, y in zip(GATES, results, strict=True):
        assert y.dtype == dtype
        expected = torch.from_numpy(exact(gate, VALUE, x.double().numpy()))
        bound = 4 * torch.finfo(torch.float32).eps * x.double().abs() + half_unit * expected.abs()
        least = torch.finfo(dtype).smallest_normal
        assert ((y.double() - expected).abs() <= bound + least).all(), gate


def product(gate: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    gated, up = x.chunk(2, -1)
    return gate(gated) * up


# A module, and its formula in plain PyTorch, of the same parameters in float64.
MODULES: dict[str, tuple[torch.nn.Module, Callable[[torch.nn.Module, Tensor], Tensor]]] = {
    "GELU": (nn.GELU("tanh", save="8bit", dither=True), lambda _, x: reference.normal_tanh(x)),
    "BiasGELU": (nn.BiasGELU(8, save="4bit"), lambda m, x: reference.normal(x + m.bias)),
    "SiLU": (nn.SiLU(), lambda _, x: reference.logistic(x)),
    "LaLU": (nn.LaLU(), lambda _, x: reference.laplace(x)),
    "CauchyGate": (nn.CauchyGate(), lambda _, x: reference.cauchy(x)),
    "SOIMap": (nn.SOIMap("cauchy"), lambda _, x: reference.cauchy(x)),
    "CDFGate": (
        nn.CDFGate("normal", loc=0.25, scale=0.5, num_parameters=8),
        lambda m, x: x * reference.DISTRIBUTIONS["normal"]((x - m.loc) / m.scale),
    ),
    "GEGLU": (nn.GEGLU("sigmoid"), lambda _, x: product(reference.logistic_1702, x)),
    "SwiGLU": (nn.SwiGLU(), lambda _, x: product(reference.logistic, x)),
    "LinearGELU": (
        nn.LinearGELU(8, 5),
        lambda m, x: reference.normal(F.linear(x, m.weight, m.bias)),
    ),
    "GateLinear": (
        nn.GateLinear(8, 5, gate="laplace"),
        lambda m, x: F.linear(reference.laplace(x), m.weight, m.bias),
    ),
    "GLULinear": (
        nn.GLULinear(4, 5, gate="logistic"),
        lambda m, x: F.linear(product(reference.logistic, x), m.weight, m.bias),
    ),
    "MLP": (
        nn.MLP(8, 12, gate="normal_tanh"),
        lambda m, x: m.down(reference.normal_tanh(m.up(x))),
    ),
}


def test_all_modules_are_exported() -> None:
    assert MODULES.keys() == {*nn.__all__}


class Modules(torch.nn.ModuleList):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [module(x) for module in self]


def test_modules() -> None:
    x = torch.randn(50, 8)
    modules = Modules([module for module, _ in MODULES.values()])
    with torch.no_grad():
        for parameter in [p for n, p in modules.named_parameters() if n.endswith("bias")]:
            parameter.normal_()
        results = run(to_onnx(modules, x[:3]), x)
        for (name, (module, formula)), y in zip(MODULES.items(), results, strict=True):
            expected = formula(deepcopy(module).double(), x.double())
            torch.testing.assert_close(
                y.double(), expected, **CLOSE, msg=lambda message, name=name: f"{name}: {message}"
            )


def test_onnx_has_gelu() -> None:
    """GELU becomes ONNX's operator, which other programs know, and not a formula."""
    assert operators(to_onnx(nn.LinearGELU(8, 4), torch.randn(3, 8)))[-1:] == ["Gelu"]


def test_functions() -> None:
    """Gated linear units with every option, of two tensors and of halves; and a cdf_gate with scale
    0, a step at loc, which divides 0 by 0 there."""
    options = {"gate": "logistic_1702", "limit": 1.5, "up_offset": 1.0}
    x, up, weight = torch.randn(50, 8), torch.randn(50, 8), torch.rand(50)
    x[0, :4] = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    model = AsModule(
        lambda x, up, weight: [
            functional.glu(x, up, weight=weight, **options),
            functional.glu(torch.cat([x, up], -1), weight=weight, **options),
            functional.glu(x, up, gate="cauchy"),
            functional.cdf_gate(x, 0.5, 0.0),
        ]
    )
    *units, step = run(to_onnx(model, x[:3], up[:3], weight[:3]), x, up, weight)
    assert torch.equal(step[0, :4], torch.tensor([0.0, 0.0, 0.25, 2.0]))
    x, up, weight = x.double(), up.double(), weight.double()
    unit = reference.logistic_1702(x.clamp(max=1.5)) * (up.clamp(-1.5, 1.5) + 1)
    unit = unit * weight.unsqueeze(-1)
    expected = [unit, unit, reference.cauchy(x) * up]
    torch.testing.assert_close([y.double() for y in units], expected, **CLOSE)


class Block(torch.nn.Module):
    """A plain transformer block: LayerNorm, attention, and two kinds of MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
        )
        self.gate, self.up, self.down = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.mlp(self.norm(x))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def test_a_model_with_replaced_activations() -> None:
    model = Block().eval()
    x = torch.randn(6, 5, 16)
    expected = Block().double().eval()
    expected.load_state_dict(model.state_dict())
    replacement = replace_activations(model)
    assert len(replacement.changed) >= 2
    (y,) = run(to_onnx(model, x[:3]), x)
    with torch.no_grad():
        torch.testing.assert_close(y.double(), expected(x.double()), rtol=1e-5, atol=1e-5)
