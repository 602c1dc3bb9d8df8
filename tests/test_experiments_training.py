"""A network in training: its losses, its batches, its learning rate, and its data."""

import dataclasses
import math

import pytest
import torch
from test_experiments_runs import CPU, settings_of
from torch import nn
from torch.nn.functional import cross_entropy

from experiments.data.dataset import Dataset, Part
from experiments.data.digits import digit_images, digits
from experiments.recipe import cosine, linear_in_second_half, nesterov, whitened
from experiments.recipes import RECIPES
from experiments.training import Run


class Table(nn.Module):
    """Logits that are the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def run_of(x: torch.Tensor, y: torch.Tensor, **changes: object) -> Run:
    part = Part(x, y)
    recipe = dataclasses.replace(
        RECIPES["mnist-classifier"], model=lambda *args: Table(), batch=4, **changes
    )
    return Run(
        recipe, settings_of("mnist-classifier", "gelu"), Dataset("", part, part, part, 3), CPU
    )


def test_losses_and_errors() -> None:
    x, y = torch.randn(2500, 3), torch.randint(3, (2500,))
    loss, error = run_of(x, y).evaluate(Part(x, y))
    assert loss == pytest.approx(cross_entropy(x.double(), y).item(), rel=1e-5)
    assert (
        error == sum(row.index(max(row)) != c for row, c in zip(x.tolist(), y, strict=True)) / 2500
    )
    assert all(map(math.isnan, run_of(x, y).evaluate(Part(x[:0], y[:0]))))


def test_noise_is_uniform() -> None:
    """Of 3000 numbers in [-2, 2]: mean and variance within 5 standard errors."""
    seen = []
    run = run_of(torch.zeros(1000, 3), torch.zeros(1000, dtype=torch.int64))
    run.network.register_forward_hook(lambda module, args, y: seen.append(args[0]))
    run.evaluate(run.data.test, noise=2.0)
    (x,) = seen
    assert 1.99 < x.max() <= 2 and -2 <= x.min() < -1.99
    assert abs(x.mean()) < 5 * (4 / 3 / 3000) ** 0.5
    # Of a uniform number the fourth moment is 9/5 of the squared variance.
    assert abs(x.var() - 4 / 3) < 5 * 4 / 3 * (0.8 / 3000) ** 0.5


def test_an_epoch_takes_each_example_once() -> None:
    seen = []
    x = torch.arange(30.0).view(10, 3)
    run = run_of(x, torch.zeros(10, dtype=torch.int64))
    run.network.register_forward_hook(
        lambda module, args, y: seen.append(args[0][:, 0] / 3) if module.training else None
    )
    for _ in range(2):
        run.epoch()
    first, second = torch.cat(seen[:2]).tolist(), torch.cat(seen[2:]).tolist()
    assert len(set(first)) == len(set(second)) == 8  # two batches of 4; 2 examples are left out
    assert first != second


def test_schedules() -> None:
    rates = []
    for done in (0.0, 0.25, 0.5, 0.75, 1.0):
        groups = {"lr": 0.0}, {"lr": 0.0}
        cosine(groups[0], 0.1, done)
        linear_in_second_half(groups[1], 1e-3, done)
        rates.append((groups[0]["lr"], groups[1]["lr"], groups[1]["betas"][0]))
    half = 0.05 / 2**0.5
    expected = [(0.1, 1e-3, 0.9), (0.05 + half, 1e-3, 0.9), (0.05, 1e-3, 0.5)]
    expected += [(0.05 - half, 5e-4, 0.5), (0.0, 0.0, 0.5)]
    assert [rate for row in rates for rate in row] == pytest.approx(sum(expected, ()))


def test_weights_decay_and_biases_do_not() -> None:
    layer = nn.Linear(2, 2)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = nesterov(layer, 0.1)
    layer.weight.grad, layer.bias.grad = torch.zeros(2, 2), torch.zeros(2)
    optimizer.step()
    # The gradient of 0.0005 |w|^2 is 0.001 w; Nesterov's first step is 1.9 of it.
    torch.testing.assert_close(layer.weight.detach(), weight * (1 - 0.1 * 1.9 * 0.001))
    torch.testing.assert_close(layer.bias.detach(), bias)


def test_whitened_images() -> None:
    """Uncorrelated, of variance 1 where it was far above 1e-5; and the axes stay."""
    data = digit_images()
    white = whitened(data)
    x = torch.cat([white.train.x, white.validation.x]).flatten(1).double()
    original = torch.cat([data.train.x, data.validation.x]).flatten(1).double()
    variances = torch.linalg.eigvalsh(original.T.cov(correction=0))
    found = torch.linalg.eigvalsh(x.T.cov(correction=0))
    torch.testing.assert_close(found, variances / (variances + 1e-5), atol=1e-2, rtol=0)
    assert x.mean(0).abs().max() < 1e-3
    cross = (original - original.mean(0)).T @ x
    torch.testing.assert_close(cross, cross.T, atol=1e-2 * cross.abs().max().item(), rtol=0)
    assert white.test.x.shape == data.test.x.shape


def test_the_digits_are_divided_by_class() -> None:
    data = digits()
    assert [len(part.y) for part in data.parts().values()] == [1257, 180, 360]
    for part in data.parts().values():
        assert (part.y.bincount() - len(part.y) / 10).abs().max() <= 0.03 * len(part.y)
        assert 0 == part.x.min() < part.x.max() == 1
    whole = torch.cat([part.x for part in data.parts().values()])
    assert len(whole.unique(dim=0)) == 1797
