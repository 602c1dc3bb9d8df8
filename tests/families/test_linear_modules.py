"""The modules with a linear layer after a gate: MLP, GateLinear, GLULinear and LinearGELU."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import linear

from gelu_kernels import nn, reference
from tests.calls import GATES, normal
from tests.cases import each
from tests.replace.replacements import SavedBytes


def state(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in module.state_dict().items()}


def of_mlp(mlp: nn.MLP, x: Tensor) -> Tensor:
    """In plain PyTorch."""
    function = getattr(reference, mlp.gate)
    hidden = linear(x, mlp.up.weight, mlp.up.bias)
    if mlp.glu:
        first, second = hidden.chunk(2, -1)
        hidden = function(first) * second
    else:
        hidden = function(hidden)
    return linear(hidden, mlp.down.weight, mlp.down.bias)


@each(glu=[False, True], bias=[False, True], gate=GATES)
def test_mlp(glu: bool, bias: bool, gate: str) -> None:
    mlp = nn.MLP(8, 12, gate=gate, glu=glu, bias=bias, dtype=torch.float64)
    hidden = 24 if glu else 12
    shapes = {"up.weight": (hidden, 8), "down.weight": (8, 12)}
    assert state(mlp) == shapes | ({"up.bias": (hidden,), "down.bias": (8,)} if bias else {})
    x = normal(5, 8).requires_grad_()
    wanted = [x, *mlp.parameters()]
    y, expected, dy = mlp(x), of_mlp(mlp, x), normal(5, 8)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad(y, wanted, dy), grad(expected, wanted, dy))


@each(glu=[False, True])
def test_saved_bytes_of_mlp(glu: bool) -> None:
    """The hidden layer once. A hook on `down` reads the gate's result, which is saved too."""
    mlp = nn.MLP(8, 32, glu=glu)
    x, hidden = torch.randn(512, 8), 512 * 32 * 4
    totals = []
    for _ in range(2):
        with SavedBytes() as saved:
            keep = mlp(x)
        totals.append(saved.total)
        del keep
        mlp.down.register_forward_hook(lambda *_: None)
    kept = 2 * hidden if glu else hidden
    others = x.nbytes + mlp.down.weight.nbytes + (0 if glu else mlp.up.bias.nbytes)
    assert totals == [kept + others, kept + hidden + others]


class Doubled(torch.nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def double_by_subclass(mlp: nn.MLP, name: str) -> None:
    layer = getattr(mlp, name)
    layer.__class__ = Doubled


def double_by_hook(mlp: nn.MLP, name: str) -> None:
    getattr(mlp, name).register_forward_hook(lambda module, inputs, y: 2 * y)


def double_by_pre_hook(mlp: nn.MLP, name: str) -> None:
    getattr(mlp, name).register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))


def double_by_patch(mlp: nn.MLP, name: str) -> None:
    layer = getattr(mlp, name)
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


def double_by_parametrization(mlp: nn.MLP, name: str) -> None:
    class Double(torch.nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    torch.nn.utils.parametrize.register_parametrization(getattr(mlp, name), "weight", Double())


def double_by_replacement(mlp: nn.MLP, name: str) -> None:
    setattr(mlp, name, torch.nn.Sequential(getattr(mlp, name), Times(2)))


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:
        return self.factor * input


@each(
    change=[
        double_by_subclass,
        double_by_hook,
        double_by_pre_hook,
        double_by_patch,
        double_by_parametrization,
        double_by_replacement,
    ],
    name=["up", "down"],
    glu=[False, True],
)
def test_mlp_calls_a_layer_that_is_not_plain(
    change: Callable[[nn.MLP, str], None], name: str, glu: bool
) -> None:
    mlp = nn.MLP(8, 12, glu=glu, bias=False, dtype=torch.float64)
    doubled = copy.deepcopy(mlp)
    getattr(doubled, name).weight.data.mul_(2)
    x = normal(5, 8).requires_grad_()
    change(mlp, name)
    y, expected = mlp(x), of_mlp(doubled, x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad(y.sum(), x), grad(expected.sum(), x))


@each(glu=[False, True])
def test_hooks_see_the_layers_of_mlp(glu: bool) -> None:
    """Each with its bias, by hooks of the layers and by global ones."""
    mlp = nn.MLP(8, 12, glu=glu, dtype=torch.float64)
    x, seen = normal(5, 8), {}

    def hook(module: torch.nn.Module, inputs: tuple[Tensor], y: Tensor) -> None:
        seen[module] = inputs[0], y

    def check() -> None:
        for layer in (mlp.up, mlp.down):
            into, y = seen[layer]
            torch.testing.assert_close(y, linear(into, layer.weight, layer.bias))
        torch.testing.assert_close(seen[mlp.down][1], of_mlp(mlp, x))
        seen.clear()

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    mlp(x)
    handle.remove()
    check()
    handles = [layer.register_forward_hook(hook) for layer in (mlp.up, mlp.down)]
    mlp(x)
    check()
    for handle in handles:
        handle.remove()
    mlp(x)
    assert not seen
    gradients = []
    mlp.down.register_full_backward_hook(lambda module, inputs, _: gradients.append(inputs))
    mlp(x.requires_grad_()).sum().backward()
    assert gradients[0][0].shape == (5, 12)


@each(glu=[False, True])
def test_patched_linear(glu: bool) -> None:
    mlp = nn.MLP(8, 12, glu=glu, bias=False, dtype=torch.float64)
    x = normal(5, 8)
    expected = 2 * of_mlp(mlp, x)
    mlp.up.weight.data.div_(2)
    forward = torch.nn.Linear.forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Linear, "forward", lambda self, x: 2 * forward(self, x))
        torch.testing.assert_close(mlp(x), expected)


@each(glu=[False, True])
def test_symbolic_trace_of_mlp_calls_its_layers(glu: bool) -> None:
    """Other code may replace or wrap the layers before the graph runs."""
    graph = torch.fx.symbolic_trace(nn.MLP(8, 12, glu=glu, dtype=torch.float64))
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert called == ["up", "down"]
    mlp = nn.MLP(8, 12, glu=glu, dtype=torch.float64)
    mlp.load_state_dict(graph.state_dict())
    x = normal(5, 8)
    torch.testing.assert_close(graph(x), of_mlp(mlp, x))


def test_mlp_loads_its_states_of_version_0_2() -> None:
    """Also as part of a model. `down` held the bias of the hidden layer."""
    model = torch.nn.Sequential(nn.MLP(8, 12))
    expected = {name: torch.randn_like(t) for name, t in model.state_dict().items()}
    old = {name.replace("up.bias", "down.gate_bias"): t for name, t in expected.items()}
    model.load_state_dict(old)
    assert "0.down.gate_bias" in old
    for name, t in model.state_dict().items():
        assert torch.equal(t, expected[name])


@each(bias=[False, True])
def test_mlp_loads_halves_that_are_apart(bias: bool) -> None:
    """As models keep them: gate, up and down. What it saves has them in one."""
    of_model = torch.nn.ModuleDict({name: torch.nn.Linear(8, 12, bias) for name in ("gate", "up")})
    of_model["down"] = torch.nn.Linear(12, 8, bias)
    model = torch.nn.Sequential(nn.MLP(8, 12, gate="silu", glu=True, bias=bias))
    state = {f"0.{name}": t for name, t in of_model.state_dict().items()}
    model.load_state_dict(state)
    assert "0.gate.weight" in state
    x = normal(5, 8).float()
    hidden = reference.logistic(of_model["gate"](x)) * of_model["up"](x)
    torch.testing.assert_close(model(x), of_model["down"](hidden))
    model.load_state_dict(model.state_dict())


@each(kind=[{}, {"glu": True}])
def test_mlp_starts_as_its_linear_layers(kind: dict) -> None:
    torch.manual_seed(0)
    mlp = nn.MLP(8, 12, **kind)
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 24 if kind else 12), torch.nn.Linear(12, 8)
    expected = [t for layer in layers for t in layer.parameters()]
    assert all(map(torch.equal, mlp.parameters(), expected))
    assert mlp.up.bias.abs().min() > 0


@each(glu=[False, True], bias=[False, True])
def test_dropout_of_mlp(glu: bool, bias: bool) -> None:
    """In training an element of the hidden layer is zero, or what it was times 1 / (1 - p)."""
    mlp = nn.MLP(8, 12, glu=glu, bias=bias, dropout=0.25, dtype=torch.float64)
    x, seen = normal(500, 8), []
    mlp.down.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torch.testing.assert_close(mlp.eval()(x), of_mlp(mlp, x))
    mlp.train()(x)
    kept, dropped = seen
    is_zero = dropped == 0
    assert abs(is_zero.double().mean() - 0.25) < 4 * (0.25 * 0.75 / is_zero.numel()) ** 0.5
    torch.testing.assert_close(dropped, torch.where(is_zero, 0.0, kept / 0.75))


LAYERS = [nn.LinearGELU, nn.GateLinear, partial(nn.GateLinear, gate_bias=True), nn.GLULinear]


@each(kind=LAYERS, bias=[False, True])
def test_state_of_linear(kind: Callable[..., torch.nn.Module], bias: bool) -> None:
    """Names, shapes and initialisation are nn.Linear's, but the layer is not an instance of it."""
    layer = kind(3, 4, bias, "meta", torch.float16)
    assert not isinstance(layer, torch.nn.Linear)
    assert all(p.is_meta and p.dtype is torch.float16 for p in layer.parameters())
    torch.manual_seed(0)
    layer = kind(3, 4, bias)
    torch.manual_seed(0)
    other = torch.nn.Linear(3, 4, bias)
    assert repr(layer).split("(")[1].startswith(repr(other).split("(")[1].rstrip(")"))
    assert layer.in_features == 3 and layer.out_features == 4
    found = layer.state_dict()
    gate_bias = found.pop("gate_bias", torch.zeros(3))
    assert found.keys() == other.state_dict().keys()
    assert all(torch.equal(t, other.state_dict()[name]) for name, t in found.items())
    assert torch.equal(gate_bias, torch.zeros(3))
