"""One network in training: its steps, its evaluation, and its state."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.activations import ACTIVATIONS
from experiments.data.dataset import Dataset, Part
from experiments.recipe import Recipe

AT_ONCE = 1000  # examples in a batch of an evaluation
Row = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Everything that determines a run's result, except the recipe and the data."""

    activation: str
    keep: float
    learning_rate: float
    seed: int
    epochs: int
    dtype: str
    on_validation: bool  # whether to train on the validation examples as well

    def __str__(self) -> str:
        also = " on all" if self.on_validation else ""
        rate = f"{self.learning_rate:g}"
        return f"{self.activation} keep {self.keep:g} rate {rate} seed {self.seed}{also}"


class Run:
    """`rows` has a dictionary for each epoch; `robustness` one for each strength of noise."""

    def __init__(
        self, recipe: Recipe, settings: Settings, data: Dataset, device: torch.device
    ) -> None:
        self.recipe, self.settings = recipe, settings
        self.data = data.with_validation_in_train() if settings.on_validation else data
        self.device = device
        torch.manual_seed(settings.seed)
        activation = ACTIVATIONS[settings.activation]
        network = recipe.model(self.data, activation, settings.keep)
        # Convolutions take a quarter less time so on a CPU (measured for both networks).
        self.network = network.to(device, memory_format=torch.channels_last)
        self.optimizer = recipe.optimizer(self.network, settings.learning_rate)
        self.shuffle = torch.Generator().manual_seed(settings.seed)
        self.rows: list[Row] = []
        self.robustness: list[Row] = []

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        dtype = getattr(torch, self.settings.dtype)
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            return self.recipe.loss(self.network, x, y)

    def step(self, chosen: Tensor, done: float) -> Tensor:
        for group in self.optimizer.param_groups:
            self.recipe.schedule(group, self.settings.learning_rate, done)
        x, y = self.data.inputs(self.data.train.x[chosen]), self.data.train.y[chosen]
        if self.data.augment:
            x = self.data.augment(x)
        loss, _ = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, part: Part, noise: float = 0.0) -> tuple[float, float]:
        """The mean loss and the error rate; NaN without examples."""
        self.network.eval()
        generator = torch.Generator().manual_seed(self.settings.seed)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for x, y in zip(part.x.split(AT_ONCE), part.y.split(AT_ONCE), strict=True):
            x = self.data.inputs(x)
            if noise:
                x = x + noise * (2 * torch.rand(x.shape, generator=generator) - 1).to(x.device)
            loss, wrong = self.loss(x, y)
            sums += torch.stack([loss * len(y), wrong])
        loss, wrong = (sums / len(part.y)).tolist() if len(part.y) else (math.nan, math.nan)
        return loss, wrong

    def epoch(self) -> None:
        self.network.train()
        train = self.data.train
        batch = min(self.recipe.batch, len(train.y))
        steps = len(train.y) // batch  # the rest is left out, as in the authors' scripts
        order = torch.randperm(len(train.y), generator=self.shuffle).to(self.device)
        losses = []
        for step in range(steps):
            done = (len(self.rows) + step / steps) / self.settings.epochs
            losses.append(self.step(order[step * batch : (step + 1) * batch], done))
        row = {"epoch": len(self.rows) + 1, "step_loss": torch.stack(losses).mean().item()}
        for name, part in self.data.parts().items():
            row[f"{name}_loss"], row[f"{name}_error"] = self.evaluate(part)
        self.rows.append(row)

    def finished(self) -> bool:
        return len(self.rows) == self.settings.epochs

    def test_with_noise(self) -> None:
        for strength in self.recipe.noise:
            loss, error = self.evaluate(self.data.test, strength)
            self.robustness.append({"noise": strength, "test_loss": loss, "test_error": error})

    def state(self) -> dict[str, object]:
        """The results and, until the run has finished, all that it needs to resume."""
        state = {"rows": self.rows, "robustness": self.robustness}
        if not self.finished():
            state["network"] = self.network.state_dict()
            state["optimizer"] = self.optimizer.state_dict()
            state["shuffle"] = self.shuffle.get_state()
            state["cpu"] = torch.get_rng_state()
            if self.device.type == "cuda":
                state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def restore(self, state: dict[str, object]) -> None:
        self.rows = state["rows"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.shuffle.set_state(state["shuffle"])
        torch.set_rng_state(state["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)
