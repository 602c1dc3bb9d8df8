"""torch.fx.symbolic_trace of our modules and functions, and of models with replaced activations:
the graph has the values and the gradients of the module."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import functional, nn, replace_activations
from tests.cases import each

MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "BiasGELU": lambda: nn.BiasGELU(8),
    "CDFGate": lambda: nn.CDFGate(loc=0.5, scale=2.0),
    "CDFGate, vectors": lambda: nn.CDFGate(loc=0.5, scale=2.0, num_parameters=8),
    "CDFGate, buffers": lambda: nn.CDFGate(loc=0.5, scale=2.0, learnable=False),
    "CauchyGate": nn.CauchyGate,
    "GEGLU": nn.GEGLU,
    "GELU": lambda: nn.GELU("tanh"),
    "GELU, dithered": lambda: nn.GELU(save="8bit", dither=True),
    "GLULinear": lambda: nn.GLULinear(4, 8, limit=1.0, up_offset=0.5),
    "GateLinear": lambda: nn.GateLinear(8, 4, gate_bias=True),
    "LaLU": nn.LaLU,
    "LinearGELU": lambda: nn.LinearGELU(8, 4),
    "LinearGELU, dithered": lambda: nn.LinearGELU(8, 4, save="4bit", dither=True),
    "MLP": lambda: nn.MLP(8, 12),
    "MLP, glu": lambda: nn.MLP(8, 12, glu=True),
    "SOIMap": nn.SOIMap,
    "SOIMap, evaluated": lambda: nn.SOIMap().eval(),
    "SiLU": nn.SiLU,
    "SwiGLU": nn.SwiGLU,
}


class Calls(torch.nn.Module):
    """A function of an input, a matrix and a vector."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(8, 8))
        self.bias = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "cdf_gate of numbers": lambda x, w, b: functional.cdf_gate(x, 0.5, 2),
    "cdf_gate of both": lambda x, w, b: functional.cdf_gate(x, b, 2.0),
    "soi_map of numbers": lambda x, w, b: functional.soi_map(x, loc=0.5, scale=2),
    "gate_linear": lambda x, w, b: functional.gate_linear(x, w, b, gate_bias=b),
    "glu_linear": lambda x, w, b: functional.glu_linear(x, x + 1, w, b, limit=1.0),
    "gate_dropout": lambda x, w, b: functional.gate_dropout(x, b, 0.5, save="8bit"),
    "glu_dropout": lambda x, w, b: functional.glu_dropout(x, x + 1, 0.5),
    "bias_gelu_dropout": lambda x, w, b: functional.bias_gelu_dropout(x, b, 0.5),
    "bias_soi_map": lambda x, w, b: functional.bias_soi_map(x, b),
    "glu with a weight": lambda x, w, b: functional.glu(x, x, gate="normal", weight=x[:, 0]),
}


def results(module: torch.nn.Module, x: Tensor, parameters: list[Tensor]) -> list[Tensor | None]:
    torch.manual_seed(0)
    y = module(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *parameters], allow_unused=True)]


def test_every_module_is_here() -> None:
    assert {name.split(",")[0] for name in MODULES} == set(nn.__all__)


@each(name=MODULES | FUNCTIONS)
def test_modules_and_functions(name: str) -> None:
    module = (MODULES[name]() if name in MODULES else Calls(FUNCTIONS[name])).double()
    graph, parameters = torch.fx.symbolic_trace(module), list(module.parameters())
    for shape in ((5, 8), (3, 8)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        expected = results(module, x, parameters)
        for a, b in zip(results(graph, x, parameters), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 12)
        self.gate = torch.nn.Linear(8, 12)
        self.both = torch.nn.Linear(8, 24)
        self.down = torch.nn.Linear(12, 8)
        self.act = torch.nn.GELU()


class OfModule(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class OfFunction(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class GLUOfModule(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class GLUOfFunction(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GLUOfHalves(Block):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(up * self.act(gate))


class LimitedGLU(Block):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate(x).clamp(max=1.0), self.up(x).clamp(min=-1.0, max=1.0)
        return self.down(gate * torch.sigmoid(gate * 1.702) * (up + 1))


def sequential() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.GELU(), torch.nn.Linear(12, 8))


BLOCKS = [OfModule, OfFunction, GLUOfModule, GLUOfFunction, GLUOfHalves, LimitedGLU, sequential]
OPTIONS = [{}, {"fuse_bias": True}, {"recompute": True}, {"fuse_bias": True, "recompute": True}]


@each(block=BLOCKS, options=OPTIONS)
def test_with_our_activations(block: Callable[[], torch.nn.Module], options: dict) -> None:
    """As a whole model and as part of one. The graph calls the module's layers, and may compute
    their activation by torch's function."""
    for model in (block(), torch.nn.Sequential(torch.nn.LayerNorm(8), block())):
        model.double()
        x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
        parameters = list(model.parameters())
        expected = results(model, x, parameters)
        assert replace_activations(model, **options).changed
        graph = torch.fx.symbolic_trace(model)
        for a, b in zip(results(graph, x, parameters), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
