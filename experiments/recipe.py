"""What an experiment is: its data, its network, how it is trained, and what the paper found."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD, Adam, Optimizer

from experiments.data.dataset import Dataset, Part
from experiments.models import Model

LEARNING_RATES = (1e-3, 1e-4, 1e-5)
# Section 4 compares the SOI map with a ReLU at the best of these probabilities to keep a neuron.
KEEPS_BESIDE_SOI = (1.0, 0.75, 0.5)


def adam(network: nn.Module, learning_rate: float) -> Optimizer:
    return Adam(network.parameters(), learning_rate, fused=True)


def nesterov(network: nn.Module, learning_rate: float) -> Optimizer:
    """The authors' script adds 0.0005 |w|^2 to the loss, for weights but not for biases."""
    named = list(network.named_parameters())
    weights = [p for name, p in named if name.endswith("weight")]
    others = [p for name, p in named if not name.endswith("weight")]
    groups = [{"params": weights, "weight_decay": 2 * 0.0005}, {"params": others}]
    return SGD(groups, learning_rate, momentum=0.9, nesterov=True)


def constant(group: dict, learning_rate: float, done: float) -> None:
    """A schedule that changes nothing. `done` is the fraction of the training, from 0 to 1."""


def linear_in_second_half(group: dict, learning_rate: float, done: float) -> None:
    """With the momentum of Salimans and Kingma (2016)."""
    group["lr"] = learning_rate * min(2 - 2 * done, 1)
    group["betas"] = (0.9 if done < 0.5 else 0.5, 0.999)


def cosine(group: dict, learning_rate: float, done: float) -> None:
    """Loshchilov and Hutter's (2016), whose first restart would come after the last epoch."""
    group["lr"] = learning_rate * (1 + math.cos(math.pi * done)) / 2


def whitened(data: Dataset) -> Dataset:
    """ZCA whitening, fitted to all examples but the test's; 1e-5 is from the authors' script."""
    x = torch.cat([data.train.x, data.validation.x]).flatten(1)
    mean = x.mean(0)
    covariance = x.T.double().cov(correction=0)  # float32 would lose variances near 1e-5
    variances, directions = torch.linalg.eigh(covariance)
    matrix = (directions * (variances + 1e-5).rsqrt() @ directions.T).float()
    return data.map(lambda p: Part(((p.x.flatten(1) - mean) @ matrix).view_as(p.x), p.y))


def to_classes(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss, and how many examples are classified wrongly."""
    logits = network(x).float()
    return cross_entropy(logits, y), (logits.argmax(1) != y).sum()


def to_itself(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean squared error; nothing is classified."""
    return mse_loss(network(x).float(), x), torch.tensor(math.nan, device=x.device)


@dataclass(frozen=True)
class Recipe:
    """`load` and `stand_in` are the names of functions, imported when they are called.

    `choose` says how the learning rate is chosen: not at all ("none"), by validation error
    ("validation"), or by validation error before a second training that includes the validation
    examples ("retrain").
    """

    title: str
    section: str
    load: str
    stand_in: str
    model: Model
    epochs: int
    batch: int
    seeds: int
    keeps: tuple[float, ...] = (1.0,)
    learning_rates: tuple[float, ...] = LEARNING_RATES
    choose: Literal["none", "validation", "retrain"] = "validation"
    optimizer: Callable[[nn.Module, float], Optimizer] = adam
    schedule: Callable[[dict, float, float], None] = constant
    loss: Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]] = to_classes
    prepare: Callable[[Dataset], Dataset] = lambda data: data
    activations: tuple[str, ...] = ("gelu", "relu", "elu")
    noise: tuple[float, ...] = ()  # a of Unif[-a, a], added to the inputs of a test
    examples: int | None = None  # at most, of each part
    curves: tuple[str, str] = ("train_loss", "validation_loss")  # of the figure, dark and light
    claim: str = ""  # the paper's
    stand_in_says: str = ""
    paper: dict[str, str] = field(default_factory=dict)  # test errors in %
    quick: dict[str, object] = field(default_factory=dict)  # replaces settings

    @property
    def classifies(self) -> bool:
        return self.loss is to_classes

    @property
    def reported_rates(self) -> tuple[float, ...]:
        """The learning rates that are reported separately."""
        return self.learning_rates if self.choose == "none" else ()

    def data(self, folder: Path | None) -> Dataset:
        data = resolve_name(self.load)(folder) if folder else resolve_name(self.stand_in)()
        if self.examples:
            data = data.first(self.examples)
        return self.prepare(data)

    def variants(self, activations: Iterable[str]) -> list[tuple[str, float]]:
        """Activations and probabilities to keep a neuron. The SOI map is used without dropout."""
        activations = list(activations)
        found = [(name, keep) for name in activations if name != "soi" for keep in self.keeps]
        if "soi" in activations:
            found.append(("soi", 1.0))
            if "relu" in activations and "soi" in self.activations:
                found += [("relu", keep) for keep in KEEPS_BESIDE_SOI]
        return list(dict.fromkeys(found))
