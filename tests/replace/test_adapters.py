"""Tools that adapt or quantise each ``nn.Linear``: they keep the gates of gelu_kernels.nn."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import linear

from gelu_kernels import functional, nn

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def phi_times(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def unit(hidden: Tensor, glu: bool) -> Tensor:
    if not glu:
        return phi_times(hidden)
    x, up = hidden.chunk(2, -1)
    return phi_times(x) * up


def weight_and_bias(layer: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """In float64, of an nn.Linear, an adapter on one, or a quantised one."""
    base = getattr(layer, "base_layer", layer)
    is_quantised = type(base.weight) is not torch.nn.Parameter
    weight = base.weight.dequantize() if is_quantised else base.weight
    weight, bias = weight.double(), base.bias.double()
    if base is not layer and not layer.merged:
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        weight = weight + layer.scaling["default"] * b @ a
    return weight, bias


def of_mlp(mlp: nn.MLP, x: Tensor) -> Tensor:
    hidden = unit(linear(x.double(), *weight_and_bias(mlp.up)), mlp.glu)
    return linear(hidden, *weight_and_bias(mlp.down))


# PEFT


@pytest.fixture
def peft() -> object:
    return pytest.importorskip("peft")


def lora(peft: object, model: torch.nn.Module, **options: object) -> torch.nn.Module:
    """Whose adapters are not zero."""
    return peft.get_peft_model(model, peft.LoraConfig(r=2, init_lora_weights=False, **options))


@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize("targets", [["up"], ["down"], ["up", "down"], "all-linear"], ids=str)
def test_lora_on_mlp(peft: object, targets: list[str] | str, glu: bool) -> None:
    model = torch.nn.Sequential(nn.MLP(8, 12, glu=glu, dtype=torch.float64))
    adapted = lora(peft, model, target_modules=targets)
    x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    wanted = [x, *(p for p in adapted.parameters() if p.requires_grad)]
    assert len(wanted) == 1 + 2 * (1 if targets in (["up"], ["down"]) else 2)
    y, expected = adapted(x), of_mlp(model[0], x)
    torch.testing.assert_close(y, expected, **EXACT)
    dy = torch.randn_like(y)
    torch.testing.assert_close(grad(y, wanted, dy), grad(expected, wanted, dy), **EXACT)
    adapted.merge_adapter()
    torch.testing.assert_close(adapted(x), expected, **EXACT)
    adapted.unmerge_adapter()
    merged = adapted.merge_and_unload()
    assert type(merged[0].up) is type(merged[0].down) is torch.nn.Linear
    torch.testing.assert_close(merged(x), expected, **EXACT)


def fused_layers() -> torch.nn.Sequential:
    layers = {
        "first": nn.LinearGELU(8, 12, dtype=torch.float64),
        "second": nn.GateLinear(12, 20, dtype=torch.float64),
        "third": nn.GLULinear(10, 8, dtype=torch.float64),
        "last": torch.nn.Linear(8, 8, dtype=torch.float64),
    }
    model = torch.nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def of_fused_layers(model: torch.nn.Sequential, weights: list[Tensor], x: Tensor) -> Tensor:
    first, second, third, last = (layer.bias for layer in model)
    x = phi_times(linear(x, weights[0], first))
    x = linear(phi_times(x), weights[1], second)
    x = linear(unit(x, True), weights[2], third)
    return linear(x, weights[3], last)


def test_lora_on_all_linear_leaves_fused_layers_alone(peft: object) -> None:
    adapted = lora(peft, fused_layers(), target_modules="all-linear")
    assert adapted.targeted_module_names == ["last"]


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_lora_refuses_fused_layers(peft: object, name: str) -> None:
    with pytest.raises(ValueError, match="is not supported"):
        lora(peft, fused_layers(), target_modules=[name])


def test_lora_on_their_parameters(peft: object) -> None:
    """PEFT has it for weights outside an nn.Linear."""
    names = ["first.weight", "second.weight", "third.weight"]
    model = fused_layers()
    weights = [layer.weight.detach() for layer in model]
    x = torch.randn(5, 8, dtype=torch.float64)
    adapted = lora(peft, copy.deepcopy(model), target_modules=[], target_parameters=names)
    adapters = list(adapted.base_model.model)[:3]
    for i, layer in enumerate(adapters):
        weights[i] = weights[i] + layer.get_delta_weight("default")
    expected = of_fused_layers(model, weights, x)
    torch.testing.assert_close(adapted(x), expected, **EXACT)
    torch.testing.assert_close(adapted.merge_and_unload()(x), expected, **EXACT)


# torchao


def int8_weights(model: torch.nn.Module) -> torch.nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


def check_values_and_gradient(y: Tensor, expected: Tensor, x: Tensor) -> None:
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    dy = torch.randn_like(y)
    (ours,), (of_formula,) = grad(y, x, dy), grad(expected, x, dy.double())
    torch.testing.assert_close(ours, of_formula, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("glu", [False, True])
def test_int8_mlp(glu: bool) -> None:
    mlp = nn.MLP(8, 12, glu=glu)
    int8_weights(mlp)
    assert type(mlp.up.weight) is type(mlp.down.weight) is not torch.nn.Parameter
    x = torch.randn(5, 8, requires_grad=True)
    check_values_and_gradient(mlp(x), of_mlp(mlp, x), x)


WITH_WEIGHT = {
    "GateLinear": (lambda w, b, x: in_module(nn.GateLinear(12, 6), w, b)(x), False),
    "GLULinear": (lambda w, b, x: in_module(nn.GLULinear(12, 6), w, b)(x), True),
    "gate_linear": (lambda w, b, x: functional.gate_linear(x, w, b), False),
    "glu_linear": (lambda w, b, x: functional.glu_linear(*x.chunk(2, -1), w, b), True),
}


def in_module(module: torch.nn.Module, weight: Tensor, bias: Tensor) -> torch.nn.Module:
    module.weight, module.bias = weight, bias
    return module


@pytest.mark.parametrize("name", WITH_WEIGHT)
def test_int8_weight_after_a_gate(name: str) -> None:
    function, glu = WITH_WEIGHT[name]
    layer = torch.nn.Linear(12, 6)
    int8_weights(layer)
    x = torch.randn(5, 24 if glu else 12, requires_grad=True)
    expected = linear(unit(x.double(), glu), *weight_and_bias(layer))
    check_values_and_gradient(function(layer.weight, layer.bias, x), expected, x)


def test_int8_weight_before_a_gate() -> None:
    layer = torch.nn.Linear(12, 6)
    int8_weights(layer)
    fused = in_module(nn.LinearGELU(12, 6), layer.weight, layer.bias)
    x = torch.randn(5, 12, requires_grad=True)
    expected = phi_times(linear(x.double(), *weight_and_bias(layer)))
    check_values_and_gradient(fused(x), expected, x)


def all_layers() -> torch.nn.Sequential:
    fused = nn.LinearGELU(16, 32), nn.GateLinear(32, 64), nn.GLULinear(32, 16)
    return torch.nn.Sequential(*fused, nn.MLP(16, 32), nn.MLP(16, 32, glu=True))


def of_all_layers(model: torch.nn.Sequential, x: Tensor) -> Tensor:
    before, after, after_glu, *mlps = model
    x = phi_times(linear(x.double(), *weight_and_bias(before)))
    x = linear(phi_times(x), *weight_and_bias(after))
    x = linear(unit(x, True), *weight_and_bias(after_glu))
    for mlp in mlps:
        x = of_mlp(mlp, x)
    return x


def float8_training(model: torch.nn.Module) -> torch.nn.Module:
    float8 = pytest.importorskip("torchao.float8")
    config = float8.Float8LinearConfig(emulate=True)
    return float8.convert_to_float8_training(model, config=config)


def quantisation_aware(model: torch.nn.Module) -> torch.nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    qat = pytest.importorskip("torchao.quantization.qat")
    weight = qat.IntxFakeQuantizeConfig(torch.int8, group_size=16)
    quantization.quantize_(model, qat.QATConfig(weight_config=weight, step="prepare"))
    return model


@pytest.mark.parametrize("convert", [float8_training, quantisation_aware, int8_weights])
def test_torchao_keeps_the_gates(convert: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    """It converts the layers of the MLPs, to within its own errors, and no fused layer."""
    torch.manual_seed(0)
    model = all_layers()
    x = torch.randn(16, 16)
    expected = of_all_layers(model, x)
    kinds = [type(layer) for layer in model]
    converted = convert(model)
    assert [type(layer) for layer in converted] == kinds
    assert type(converted[3].up) is not torch.nn.Linear or convert is int8_weights
    y = converted(x)
    assert (y - expected).norm() < 0.05 * expected.norm()
    y.sum().backward()
    assert converted[0].weight.grad.abs().max() > 0
