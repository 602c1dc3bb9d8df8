"""The paper's networks: their sizes in the papers, and a training step in each dtype."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from experiments.activations import ACTIVATIONS
from experiments.data.dataset import Dataset, Part
from experiments.models import Model, ResidualBlock, wide_resnet
from experiments.recipes import RECIPES
from experiments.training import Run, Settings
from tests.oracles import oracle

# Inputs and classes of the real data sets.
SHAPES = {
    "mnist-classifier": ((784,), 10),
    "mnist-autoencoder": ((784,), 10),
    "twitter-pos": ((150,), 25),
    "timit": ((286,), 39),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


PARAMETERS = {
    "mnist-classifier": linear(784, 128) + 7 * linear(128, 128) + linear(128, 10),
    "mnist-autoencoder": linear(784, 1000) + linear(1000, 500) + linear(500, 250)
    + linear(250, 30) + linear(30, 250) + linear(250, 500) + linear(500, 1000)
    + linear(1000, 784),
    "twitter-pos": linear(150, 256) + linear(256, 256) + linear(256, 25),
    "timit": linear(286, 2048) + 4 * linear(2048, 2048) + linear(2048, 39),
    # Appendix B, without biases, as batch normalization has them: two numbers for each channel.
    "cifar10": 9 * (3 * 96 + 2 * 96 * 96 + 96 * 192 + 3 * 192 * 192) + 2 * 192 * 192 + 192 * 10
    + 2 * (3 * 96 + 6 * 192 + 10),
}  # fmt: skip


def dataset(name: str, pixels: int = 32) -> Dataset:
    shape, classes = SHAPES[name]
    x = torch.randn(4, *shape)
    part = Part(x[..., :pixels, :pixels] if x.dim() == 4 else x, torch.arange(4))
    return Dataset(name, part, part, part, classes)


def build(name: str, activation: str = "gelu", model: Model | None = None) -> nn.Module:
    recipe = RECIPES[name]
    return (model or recipe.model)(dataset(name), ACTIVATIONS[activation], recipe.keeps[-1])


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert parameters(build(name)) == PARAMETERS[name]


def test_wide_resnet_has_as_many_parameters_as_its_paper_says() -> None:
    """Table 4 of Zagoruyko and Komodakis: 8.9 M for 40-4, 36.5 M for 28-10, on CIFAR."""
    convolutions = 9 * (3 * 16 + 16 * 64 + 11 * 64**2 + 64 * 128 + 11 * 128**2)
    convolutions += 9 * (128 * 256 + 11 * 256**2) + 16 * 64 + 64 * 128 + 128 * 256
    biases = 12 * (64 + 128 + 256)
    normalized = 2 * 2 * 16 + 2 * 6 * (64 + 128 + 256) + 2 * 256
    network = build("cifar100")
    assert parameters(network) == convolutions + biases + normalized + linear(256, 100)
    assert parameters(network) == pytest.approx(8.9e6, rel=0.01)
    assert parameters(build("cifar100", model=wide_resnet(28, 10))) == pytest.approx(
        36.5e6, rel=0.01
    )


def test_the_shapes_of_the_nine_layers() -> None:
    """Appendix B: 32, 16, 8, 6 and 1 pixels; 96, 192 and 10 channels."""
    network = build("cifar10").eval()
    x, shapes = torch.randn(2, 3, 32, 32), []
    for layer in network:
        x = layer(x)
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.AdaptiveAvgPool2d | nn.Linear):
            shapes.append(tuple(x.shape[1:3]))
    convolutions = [(96, 32)] * 3 + [(96, 16)] + [(192, 16)] * 3 + [(192, 8)] + [(192, 6)] * 3
    assert shapes == [*convolutions, (192, 1), (10,)]


def test_the_shapes_of_the_wide_resnet() -> None:
    """Table 1 of Zagoruyko and Komodakis: 32, 16 and 8 pixels."""
    network = build("cifar100").eval()
    shapes, x = [], torch.randn(1, 3, 32, 32)
    for layer in network:
        x = layer(x)
        if isinstance(layer, ResidualBlock):
            shapes.append(tuple(x.shape[1:3]))
    assert shapes == [(64, 32)] * 6 + [(128, 16)] * 6 + [(256, 8)] * 6


def test_noise_on_the_input_of_the_nine_layers() -> None:
    """Appendix B: deviation 0.15, only in training. 10^5 numbers, within 5 standard errors."""
    noise, x = build("cifar10")[0], torch.ones(10**5)
    assert torch.equal(noise.eval()(x), x)
    added = noise.train()(x) - 1
    assert abs(added.mean()) < 5 * 0.15 / 10**2.5
    assert abs(added.std() - 0.15) < 5 * 0.15 / (2 * 10**5) ** 0.5


def test_the_rows_are_of_unit_norm() -> None:
    for layer in build("mnist-classifier"):
        if isinstance(layer, nn.Linear):
            norms = layer.weight.norm(dim=1)
            torch.testing.assert_close(norms, torch.ones_like(norms))
            assert not layer.bias.any()


def test_no_dropout_nor_activation_after_the_last_layer() -> None:
    kinds = [type(layer).__name__ for layer in build("twitter-pos")]
    assert kinds == ["Linear", "GELU", "Dropout"] * 2 + ["Linear"]


@pytest.mark.parametrize(
    "activation, dtype",
    [("gelu", "float32"), ("gelu", "bfloat16"), ("soi", "float32"), ("cdf_gate", "float32")],
)
@pytest.mark.parametrize("name", RECIPES)
def test_a_step(name: str, activation: str, dtype: str) -> None:
    """In bfloat16 under autocast, as on a GPU; with small images, as a CPU is slow in bfloat16."""
    recipe = RECIPES[name]
    settings = Settings(activation, 1.0, recipe.learning_rates[0], 0, 1, dtype, False)
    run = Run(recipe, settings, dataset(name, pixels=12), torch.device("cpu"))
    seen = []
    run.network.register_forward_hook(lambda module, args, y: seen.append(y))
    before = {name: p.detach().clone() for name, p in run.network.named_parameters()}
    loss = run.step(torch.arange(4), done=0.0)
    outputs = run.data.input_shape()[0] if name == "mnist-autoencoder" else run.data.classes
    assert seen[0].shape == (4, outputs)
    assert seen[0].dtype == getattr(torch, dtype)
    assert loss.isfinite()
    for key, parameter in run.network.named_parameters():
        assert parameter.grad.isfinite().all(), key
        if key.endswith("weight"):
            assert not torch.equal(parameter, before[key]), key


def test_the_learnt_scale_stays_positive() -> None:
    gate = ACTIVATIONS["cdf_gate"].module()
    assert (gate.loc.item(), gate.scale.item()) == (0, 1)
    optimizer = torch.optim.SGD(gate.parameters(), lr=100.0)
    for _ in range(3):
        optimizer.zero_grad()
        (gate.scale + gate(torch.ones(3)).sum()).backward()
        optimizer.step()
        assert gate.scale.item() >= 0
    assert gate.loc.item() != 0


GATES = {
    "gelu": "normal",
    "gelu_tanh": "normal_tanh",
    "silu": "logistic",
    "lalu": "laplace",
    "cauchy": "cauchy",
    "soi": "normal",
    "cdf_gate": "normal",
}
FORMULAS = {
    "relu": lambda x: max(x, 0.0),
    "elu": lambda x: x if x > 0 else math.expm1(x),
    **{name: partial(oracle.exact, gate, oracle.VALUE) for name, gate in GATES.items()},
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation(name: str) -> None:
    """An untrained activation in evaluation follows its formula in the paper."""
    x = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0], dtype=torch.float64)
    found = ACTIVATIONS[name].module().double().eval()(x).tolist()
    assert found == pytest.approx([float(FORMULAS[name](v)) for v in x.tolist()], rel=1e-12, abs=0)
