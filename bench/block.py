"""``python -m bench.block``: the memory and the time of a transformer in training, for each way of
saving the hidden layers of its MLPs.

A layer is GPT-2's, or Llama's with ``--mlp swiglu``: normalisation, attention and MLP, forward and
backward; several run in sequence. Prints a table and writes it as CSV. Before timing, results and
gradients are checked against plain PyTorch in float64.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bench import environment, runs, timing
from bench.memory import peak_bytes, saved_bytes
from bench.options import prepare, threads_option
from bench.sides import Side
from bench.workloads import DTYPES, Inputs
from gelu_kernels import functional

Hidden = Callable[[Tensor], Tensor]
Mlp = Callable[[Tensor, nn.Linear, nn.Linear], Tensor]


def after(hidden: Hidden) -> Mlp:
    return lambda x, up, down: down(hidden(up(x)))


def recomputed(function: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Mlp:
    return lambda x, up, down: function(up(x), down.weight, down.bias)


def checkpointed(mlp: Mlp) -> Mlp:
    return partial(checkpoint, mlp, use_reentrant=False)


def torch_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


OURS = {
    "gelu": after(partial(functional.gelu, approximate="tanh")),
    "swiglu": after(functional.swiglu),
}
MODES: dict[str, dict[str, Mlp]] = {
    "gelu": {
        "torch": after(partial(F.gelu, approximate="tanh")),
        "gelu_kernels": OURS["gelu"],
        "recompute": recomputed(partial(functional.gate_linear, gate="normal_tanh")),
        "8bit": after(partial(functional.gelu, approximate="tanh", save="8bit")),
        "4bit": after(partial(functional.gelu, approximate="tanh", save="4bit")),
        "checkpoint": checkpointed(OURS["gelu"]),
    },
    "swiglu": {
        "torch": after(torch_swiglu),
        "gelu_kernels": OURS["swiglu"],
        "recompute": recomputed(
            lambda x, *parameters: functional.glu_linear(x, None, *parameters, gate="logistic")
        ),
        "checkpoint": checkpointed(OURS["swiglu"]),
    },
}
CODES = {"8bit": 0.01, "4bit": 0.2}  # four times the error of a derivative


class Block(nn.Module):
    def __init__(self, features: int, mlp: str, layers: int) -> None:
        super().__init__()
        self.layers = layers  # which share their parameters
        self.heads = features // 64
        is_glu = mlp == "swiglu"
        # Llama's hidden layer is 8/3 as wide, so its three matrices have as many parameters as two.
        self.hidden = round(features * 8 / 3 / 64) * 64 if is_glu else 4 * features
        norm = nn.RMSNorm if is_glu else nn.LayerNorm
        self.norms = nn.ModuleList([norm(features), norm(features)])
        self.qkv = nn.Linear(features, 3 * features, bias=not is_glu)
        self.project = nn.Linear(features, features, bias=not is_glu)
        self.up = nn.Linear(features, self.hidden * (2 if is_glu else 1), bias=not is_glu)
        self.down = nn.Linear(self.hidden, features, bias=not is_glu)

    def forward(self, x: Tensor, mlp: Mlp) -> Tensor:
        for _ in range(self.layers):
            x = self.layer(x, mlp)
        return x

    def layer(self, x: Tensor, mlp: Mlp) -> Tensor:
        batch, length, features = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, features))
        return x + mlp(self.norms[1](x), self.up, self.down)


def error(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error, relative to the largest element of its tensor."""
    return max(
        float((a.double() - e).abs().max() / e.abs().max())
        for a, e in zip(actual, expected, strict=True)
    )


def check(block: Block, inputs: Inputs, modes: dict[str, Mlp], mlp: str, bound: float) -> None:
    """Against plain PyTorch in float64. Coded derivatives add an error, which layers propagate."""

    def results(block: Block, function: Mlp, x: Tensor, dy: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        y = block(x, function)
        return [y.detach(), *torch.autograd.grad(y, [x, *block.parameters()], dy)]

    exact = Block(inputs.dy.shape[-1], mlp, block.layers).to(inputs.dy.device).double()
    exact.load_state_dict(block.state_dict())
    x, dy = inputs.operands[0].double(), inputs.dy.double()
    expected = results(exact, MODES[mlp]["torch"], x, dy)
    for name, function in modes.items():
        found = error(results(block, function, *inputs.operands, inputs.dy), expected)
        allowed = bound + CODES.get(name, 0)
        if not found <= allowed:
            raise click.ClickException(f"{name}: an error of {found:.2g}, more than {allowed:.2g}")


def measure(block: Block, inputs: Inputs, modes: dict[str, Mlp], seconds: float) -> list[dict]:
    device = inputs.dy.device.type
    parameters = list(block.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)  # as after the first step

    def step(function: Mlp) -> Callable[[], object]:
        (x,) = inputs.leaves()
        return lambda: block(x, function).backward(inputs.dy)

    clock = timing.cpu_clock if device == "cpu" else timing.cuda_clock
    calls = {name: [step(function)] for name, function in modes.items()}
    times = timing.quartiles(calls, clock, seconds=seconds)
    rows = []
    for name, function in modes.items():
        side = Side(lambda x, function=function: block(x, function))
        low, us, high = times[name]
        rows.append(
            {
                "mode": name,
                "kept bytes": saved_bytes(side, inputs, parameters),
                "peak bytes": peak_bytes(calls[name][0], device),
                "us": us,
                "low": low,
                "high": high,
            }
        )
    return rows


def table_of(rows: list[dict], hidden_elements: int, title: str) -> Table:
    table = Table(title=title)
    table.add_column("mode")
    ours = next(row for row in rows if row["mode"] == "gelu_kernels")
    for name in ("kept, MB", "of the hidden layer, B", "peak, MB", "ms", "time"):
        table.add_column(name, justify="right")
    for row in rows:
        less = (ours["kept bytes"] - row["kept bytes"]) / hidden_elements
        table.add_row(
            row["mode"],
            f"{row['kept bytes'] / 1e6:.1f}",
            f"{-less:+.2f}" if less else "0",
            f"{row['peak bytes'] / 1e6:.1f}",
            f"{row['us'] / 1e3:.1f} ± {(row['high'] - row['low']) / 2e3:.1f}",
            f"{row['us'] / ours['us']:.3f}",
        )
    return table


@click.command(help=__doc__)
@click.option("--mlp", type=click.Choice(tuple(MODES)), default="gelu", show_default=True)
@click.option("--features", type=click.IntRange(64), default=768, show_default=True)
@click.option("--layers", type=click.IntRange(1), default=4, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=2, show_default=True)
@click.option("--length", type=click.IntRange(1), default=256, show_default=True)
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), default="float32", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@threads_option
@click.option("--seconds", type=click.FloatRange(0), default=2, help="For each mode, about.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(mlp, features, layers, batch, length, dtype, device, threads, seconds, output) -> None:
    prepare(threads)
    machine = environment.describe(device)
    block = Block(features, mlp, layers).to(device, DTYPES[dtype])
    x, dy = (torch.randn(batch, length, features, dtype=DTYPES[dtype]).to(device) for _ in "12")
    inputs = Inputs((x,), dy)
    check(block, inputs, MODES[mlp], mlp, bound=2**7 * torch.finfo(DTYPES[dtype]).eps)
    rows = measure(block, inputs, MODES[mlp], seconds)
    sizes = {"mlp": mlp, "features": features, "layers": layers, "tokens": batch * length}
    sizes["dtype"] = dtype
    path = output / f"block-{mlp}-{dtype}-{runs.slug(machine)}.csv"
    runs.write_csv([sizes | row for row in rows], path)
    title = f"{machine['device']}, {torch.get_num_threads()} threads: " + ", ".join(
        f"{name} {value}" for name, value in sizes.items()
    )
    Console(width=120).print(table_of(rows, layers * batch * length * block.hidden, title))
    print(path)


if __name__ == "__main__":
    main()
