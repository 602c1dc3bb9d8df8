"""``python -m bench.guards``: what a call of a replaced model costs compared with the plain one,
in microseconds, on tensors so small that nothing else counts.

Each row is a module of transformers' shape, and each column a way to call ``replace_activations``.
Results are checked in float64 before timing.
"""

from functools import partial

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench import environment, timing
from gelu_kernels import replace_activations

OPTIONS = {
    "plain": None,
    "replaced": {},
    "fuse_bias": {"fuse_bias": True},
    "recompute": {"recompute": True},
}


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class GatedMLP(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.act = nn.Linear(8, 8), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


def sequence() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))


def replaced(model: nn.Module, options: dict[str, bool] | None) -> nn.Module:
    if options is not None:
        replace_activations(model, **options, verbose=False)
    return model


def check(name: str, make: type[nn.Module]) -> None:
    model, x = make().double(), torch.randn(4, 8, dtype=torch.float64)
    expected = model(x)
    for option, options in OPTIONS.items():
        found = float((replaced(model, options)(x) - expected).detach().abs().max())
        if not found < 1e-12:
            raise click.ClickException(f"{name}, {option}: an error of {found:.2g}")


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(0), default=2, help="For each model, about.")
def main(seconds: float) -> None:
    torch.set_num_threads(1)
    x = torch.randn(4, 8)
    table = Table("module", *OPTIONS, title=environment.describe("cpu")["device"])
    for name, make in {"MLP": MLP, "gated MLP": GatedMLP, "Sequential": sequence}.items():
        check(name, make)
        models = {option: replaced(make(), options) for option, options in OPTIONS.items()}
        sides = {option: [partial(model, x)] for option, model in models.items()}
        with torch.no_grad():
            times = timing.quartiles(sides, timing.cpu_clock, seconds=seconds)
        table.add_row(name, *(f"{middle:.1f}" for _, middle, _ in times.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
