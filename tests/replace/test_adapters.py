"""Tools that adapt or quantise each ``nn.Linear``: they keep the gates of gelu_kernels.nn."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import linear

from gelu_kernels import nn
from tests.cases import each

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def phi_times(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def unit(hidden: Tensor, glu: bool) -> Tensor:
    if not glu:
        return phi_times(hidden)
    x, up = hidden.chunk(2, -1)
    return phi_times(x) * up


def weight_and_bias(layer: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """Of a layer, which may be adapted or quantised, in float64."""
    base = getattr(layer, "base_layer", layer)
    is_quantised = type(base.weight) is not torch.nn.Parameter
    weight = base.weight.dequantize() if is_quantised else base.weight
    weight, bias = weight.double(), base.bias.double()
    if base is not layer and not layer.merged:
        weight = weight + layer.get_delta_weight("default")
    return weight, bias


def formula(layer: torch.nn.Module, x: Tensor) -> Tensor:
    base = getattr(layer, "base_layer", layer)
    if isinstance(base, nn.MLP):
        hidden = unit(linear(x.double(), *weight_and_bias(base.up)), base.glu)
        return linear(hidden, *weight_and_bias(base.down))
    if isinstance(base, nn.GateLinear | nn.GLULinear):
        x = unit(x.double(), isinstance(base, nn.GLULinear))
    y = linear(x.double(), *weight_and_bias(layer))
    return phi_times(y) if isinstance(base, nn.LinearGELU) else y


def formulas(model: torch.nn.Sequential, x: Tensor) -> Tensor:
    for layer in model:
        x = formula(layer, x)
    return x


def fused_layers() -> list[torch.nn.Module]:
    return [nn.LinearGELU(16, 32), nn.GateLinear(32, 64), nn.GLULinear(32, 16)]


# PEFT


@pytest.fixture
def peft() -> object:
    return pytest.importorskip("peft")


def lora(peft: object, model: torch.nn.Module, **options: object) -> torch.nn.Module:
    """Adapters with weights other than zero."""
    return peft.get_peft_model(model, peft.LoraConfig(r=2, init_lora_weights=False, **options))


@each(glu=[False, True], targets=[["up"], ["down"], ["up", "down"], "all-linear"])
def test_lora_on_mlp(peft: object, targets: list[str] | str, glu: bool) -> None:
    model = torch.nn.Sequential(nn.MLP(8, 12, glu=glu)).double()
    adapted = lora(peft, model, target_modules=targets)
    x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    wanted = [x, *(p for p in adapted.parameters() if p.requires_grad)]
    assert len(wanted) == 1 + 2 * (1 if targets in (["up"], ["down"]) else 2)
    y, expected = adapted(x), formulas(model, x)
    torch.testing.assert_close(y, expected, **EXACT)
    dy = torch.randn_like(y)
    torch.testing.assert_close(grad(y, wanted, dy), grad(expected, wanted, dy), **EXACT)
    adapted.merge_adapter()
    torch.testing.assert_close(adapted(x), expected, **EXACT)
    adapted.unmerge_adapter()
    merged = adapted.merge_and_unload()
    assert type(merged[0].up) is type(merged[0].down) is torch.nn.Linear
    torch.testing.assert_close(merged(x), expected, **EXACT)


def test_lora_on_fused_layers(peft: object) -> None:
    """PEFT skips or refuses them, except with ``target_parameters``, which is for weights outside
    an nn.Linear."""

    def model() -> torch.nn.Sequential:
        return torch.nn.Sequential(*fused_layers(), torch.nn.Linear(16, 16)).double()

    assert lora(peft, model(), target_modules="all-linear").targeted_module_names == ["3"]
    for name in "012":
        with pytest.raises(ValueError, match="is not supported"):
            lora(peft, model(), target_modules=[name])
    weights = [f"{name}.weight" for name in "012"]
    adapted = lora(peft, model(), target_modules=[], target_parameters=weights)
    x = torch.randn(5, 16, dtype=torch.float64)
    expected = formulas(adapted.base_model.model, x)
    torch.testing.assert_close(adapted(x), expected, **EXACT)
    torch.testing.assert_close(adapted.merge_and_unload()(x), expected, **EXACT)


# torchao


def int8_weights(model: torch.nn.Module) -> torch.nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


@each(layer=[nn.MLP(16, 12), nn.MLP(16, 12, glu=True), *fused_layers()])
def test_int8_weights(layer: torch.nn.Module) -> None:
    columns = 16
    if isinstance(layer, nn.MLP):
        int8_weights(layer)
        assert type(layer.up.weight) is type(layer.down.weight) is not torch.nn.Parameter
    else:
        quantised = int8_weights(torch.nn.Linear(*layer.weight.shape[::-1]))
        layer.weight, layer.bias = quantised.weight, quantised.bias
        columns = layer.weight.shape[1] * (2 if isinstance(layer, nn.GLULinear) else 1)
    x = torch.randn(5, columns, requires_grad=True)
    y, expected = layer(x), formula(layer, x)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    dy = torch.randn_like(y)
    (ours,), (of_formula,) = grad(y, x, dy), grad(expected, x, dy.double())
    torch.testing.assert_close(ours, of_formula, rtol=1e-4, atol=1e-5)


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


@each(convert=[float8_training, quantisation_aware, int8_weights])
def test_torchao_keeps_the_gates(convert: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    """torchao converts the linear layers of the MLPs, within its own errors, and no fused layer."""
    mlps = nn.MLP(16, 32), nn.MLP(16, 32, glu=True)
    model = torch.nn.Sequential(*fused_layers(), *mlps)
    x = torch.randn(16, 16)
    expected = formulas(model, x)
    kinds = [type(layer) for layer in model]
    converted = convert(model)
    assert [type(layer) for layer in converted] == kinds
    assert type(converted[3].up) is not torch.nn.Linear or convert is int8_weights
    y = converted(x)
    assert (y - expected).norm() < 0.05 * expected.norm()
    y.sum().backward()
    assert converted[0].weight.grad.abs().max() > 0
