"""A network in training: its losses, its batches, its learning rate, and its data."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from experiments.activations import ACTIVATIONS
from experiments.data.dataset import Dataset, Part
from experiments.data.digits import digit_images, digits
from experiments.recipe import cosine, linear_in_second_half, nesterov, to_itself, whitened
from experiments.recipes import RECIPES
from experiments.training import Run
from tests.experiments.test_runs import CPU, settings_of

NONE = Part(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))


class Table(nn.Module):
    """Logits that are the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def run_of(
    train: Part,
    validation: Part = NONE,
    test: Part = NONE,
    seed: int = 1,
    on_validation: bool = False,
    **changes: object,
) -> Run:
    """`changes` replace fields of the recipe."""
    recipe = dataclasses.replace(
        RECIPES["mnist-classifier"], **{"model": lambda *args: Table(), "batch": 4, **changes}
    )
    settings = dataclasses.replace(
        settings_of("mnist-classifier", "gelu"), seed=seed, on_validation=on_validation
    )
    return Run(recipe, settings, Dataset("", train, validation, test, 3), CPU)


def numbered(start: int, examples: int) -> Part:
    """Each example has a unique number, by which the tests recognise it."""
    numbers = torch.arange(start, start + examples)
    return Part(numbers[:, None] + torch.zeros(3), torch.zeros_like(numbers))


def seen_by(run: Run) -> list[tuple[bool, list[float]]]:
    """For each batch, whether it is trained on and the first number of each example."""
    seen: list[tuple[bool, list[float]]] = []
    run.network.register_forward_hook(
        lambda module, args, y: seen.append((module.training, args[0][:, 0].tolist()))
    )
    return seen


def test_losses_and_errors() -> None:
    part = Part(torch.randn(2500, 3), torch.randint(3, (2500,)))
    run = run_of(part)
    loss, error = run.evaluate(part)
    assert loss == pytest.approx(cross_entropy(part.x.double(), part.y).item(), rel=1e-5)
    rows = zip(part.x.tolist(), part.y.tolist(), strict=True)
    wrong = (row.index(max(row)) != label for row, label in rows)
    assert error == sum(wrong) / 2500
    assert all(map(math.isnan, run.evaluate(NONE)))


def test_the_loss_of_an_autoencoder() -> None:
    x = torch.randn(5, 3)
    loss, wrong = to_itself(nn.Threshold(0.0, 7.0), x, x)
    expected = sum((7 - v) ** 2 for v in x.flatten().tolist() if v <= 0) / 15
    assert loss.item() == pytest.approx(expected, rel=1e-5) and wrong.isnan()


def test_noise_is_uniform_and_of_the_seed() -> None:
    """3000 numbers lie in [-2, 2], with mean and variance within 5 standard errors."""

    def noise(seed: int) -> torch.Tensor:
        seen = []
        part = Part(torch.zeros(1000, 3), torch.zeros(1000, dtype=torch.int64))
        run = run_of(part, seed=seed)
        run.network.register_forward_hook(lambda module, args, y: seen.append(args[0]))
        run.evaluate(part, noise=2.0)
        return seen[0]

    x = noise(seed=1)
    assert 1.99 < x.max() <= 2 and -2 <= x.min() < -1.99
    assert abs(x.mean()) < 5 * (4 / 3 / 3000) ** 0.5
    # The fourth moment of a uniform number is 9/5 of its squared variance.
    assert abs(x.var() - 4 / 3) < 5 * 4 / 3 * (0.8 / 3000) ** 0.5
    assert torch.equal(noise(seed=1), x) and not torch.equal(noise(seed=2), x)


def test_noise_is_added_to_the_test_examples() -> None:
    run = run_of(numbered(0, 4), numbered(10, 4), numbered(20, 4), noise=(0.0, 1.0))
    seen = seen_by(run)
    run.test_with_noise()
    assert not any(training for training, _ in seen)
    assert seen[0][1] == [20, 21, 22, 23]
    assert seen[1][1] != seen[0][1] and seen[1][1] == pytest.approx(seen[0][1], abs=1)
    assert [row["noise"] for row in run.robustness] == [0, 1]


def test_an_epoch_takes_each_example_once_in_an_order_of_the_seed() -> None:
    def orders(seed: int, draws: int) -> list[list[float]]:
        run = run_of(numbered(0, 10), seed=seed)
        seen = seen_by(run)
        torch.rand(draws)  # as another network would
        run.epoch()
        run.epoch()
        first, second = ([x for _, x in seen if len(x) == 4][i : i + 2] for i in (0, 2))
        return [sum(first, []), sum(second, [])]

    first, second = orders(seed=1, draws=0)
    for order in (first, second):
        assert len(order) == len(set(order)) == 8  # two batches of 4; 2 examples are left out
    assert first != second
    assert orders(seed=1, draws=5) == [first, second]
    assert orders(seed=2, draws=0) != [first, second]


def test_each_part_is_evaluated_after_an_epoch() -> None:
    run = run_of(numbered(0, 4), numbered(10, 2), numbered(20, 3))
    seen = seen_by(run)
    run.epoch()
    assert [(training, sorted(x)) for training, x in seen] == [
        (True, [0, 1, 2, 3]),
        (False, [0, 1, 2, 3]),
        (False, [10, 11]),
        (False, [20, 21, 22]),
    ]
    assert {f"{part}_loss" for part in ("train", "validation", "test")} < run.rows[0].keys()


def test_the_validation_examples_are_trained_on_where_the_settings_say_so() -> None:
    run = run_of(numbered(0, 4), numbered(10, 4), numbered(20, 4), on_validation=True)
    seen = seen_by(run)
    run.epoch()
    trained_on = sum((x for training, x in seen if training), [])
    assert sorted(trained_on) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert math.isnan(run.rows[0]["validation_error"])


def test_only_what_is_trained_on_is_augmented() -> None:
    run = run_of(numbered(0, 4))
    run.data = dataclasses.replace(run.data, augment=lambda x: x + 100)
    seen = seen_by(run)
    run.epoch()
    assert [(training, sorted(x)) for training, x in seen if x] == [
        (True, [100, 101, 102, 103]),
        (False, [0, 1, 2, 3]),
    ]


def test_the_schedule_is_told_how_much_is_done() -> None:
    told = []
    run = run_of(
        numbered(0, 8), schedule=lambda group, rate, done: told.append((group["lr"], rate, done))
    )
    for _ in range(4):
        run.epoch()
    assert told == [(1e-3, 1e-3, step / 8) for step in range(8)]


def test_the_network_is_told_what_to_be() -> None:
    told = []
    run = run_of(numbered(0, 4), model=lambda *args: told.append(args) or Table())
    keep = settings_of("mnist-classifier", "gelu").keep
    assert keep == 0.5 and told == [(run.data, ACTIVATIONS["gelu"], keep)]


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
    """Uncorrelated, with variance 1 where it was far above 1e-5, and along the original axes."""
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


def test_the_digits_as_images() -> None:
    data = digit_images()
    assert data.test.x.shape == (360, 1, 12, 12)
    assert data.train.x.min() == -1 and 0.9 < data.train.x.max() <= 1
    assert torch.equal(data.train.y, digits().train.y)


def test_a_recipe_takes_so_many_examples_and_prepares_them() -> None:
    recipe = dataclasses.replace(
        RECIPES["mnist-classifier"],
        examples=7,
        prepare=lambda data: data.map(lambda part: Part(part.x + len(part.y), part.y)),
    )
    found, whole = recipe.data(None).parts(), digits().parts()
    for name in ("train", "validation", "test"):
        assert torch.equal(found[name].x, whole[name].x[:7] + 7)
        assert torch.equal(found[name].y, whole[name].y[:7])
    assert RECIPES["cifar10"].prepare is whitened
