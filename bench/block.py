"""``python -m bench.block``: the memory and the time of a transformer in training, for each way of
saving the hidden layers of its MLPs, and compiled.

A layer is GPT-2's, or Llama's with ``--mlp swiglu``: normalisation, attention and MLP, forward and
backward; several run in sequence. Prints a table and writes it as CSV. Before timing, results and
gradients are checked against plain PyTorch in float64: their error may be four times that of plain
PyTorch in the same dtype.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench import environment, runs, timing
from bench.measure import NO_TIME
from bench.memory import peak_bytes, saved_bytes
from bench.mlps import COMPILE, COMPILED, IN_MXFP8, MODES, SAVED, TORCH, UNSEEN, Mlp
from bench.options import deadline_option, device_option, prepare, threads_option
from bench.sides import Side
from bench.workloads import DTYPES, Inputs

Run = Callable[[Tensor], Tensor]  # of a block


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


def run_of(block: Block, name: str, mlp: Mlp) -> Run:
    def run(x: Tensor) -> Tensor:
        return block(x, mlp)

    return torch.compile(run) if name.endswith(COMPILE) else run


def results(block: Block, run: Run, inputs: Inputs) -> list[Tensor]:
    (x,) = inputs.leaves()
    y = run(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *block.parameters()], inputs.dy)]


def exact_results(block: Block, inputs: Inputs, mlp: str) -> list[Tensor]:
    """By plain PyTorch in float64."""
    features = inputs.dy.shape[-1]
    with inputs.dy.device:
        exact = Block(features, mlp, block.layers).double()
    exact.load_state_dict(block.state_dict())
    doubled = Inputs((inputs.operands[0].double(),), inputs.dy.double())
    return results(exact, run_of(exact, "torch", TORCH[mlp]), doubled)


def error(actual: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error, relative to the largest element of its tensor."""
    return max(
        float((a.double() - e).abs().max() / e.abs().max())
        for a, e in zip(actual, expected, strict=True)
    )


def check(name: str, found: float, of_torch: float) -> None:
    """Coded derivatives and quantised inputs add an error, which layers propagate."""
    allowed = 4 * of_torch + SAVED.get(name, 0)
    if not found <= allowed:
        raise click.ClickException(f"{name}: an error of {found:.2g}, more than {allowed:.2g}")


def measure(block: Block, inputs: Inputs, functions: dict[str, Run], seconds: float) -> list[dict]:
    device = inputs.dy.device.type
    parameters = list(block.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)  # as after the first step

    def step(run: Run) -> Callable[[], object]:
        (x,) = inputs.leaves()
        return lambda: run(x).backward(inputs.dy)

    clock = timing.cpu_clock if device == "cpu" else timing.cuda_clock
    calls = {name: [step(run)] for name, run in functions.items()}
    times = timing.quartiles(calls, clock, seconds=seconds)
    hidden = block.layers * inputs.dy[..., 0].numel() * block.hidden
    rows = []
    for name, run in functions.items():
        kept = None  # to see what compiled code saves, hooks would compile it anew
        if not name.endswith(COMPILE):
            kept = saved_bytes(Side(run), inputs, parameters)
            kept += int(UNSEEN.get(name, 0) * hidden)
        low, us, high = times[name]
        rows.append(
            {
                "mode": name,
                "kept bytes": kept,
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
        kept = row["kept bytes"]
        more = None if kept is None else (kept - ours["kept bytes"]) / hidden_elements
        table.add_row(
            row["mode"],
            "" if kept is None else f"{kept / 1e6:.1f}",
            "" if more is None else f"{more:+.2f}" if more else "0",
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
@device_option
@threads_option
@click.option("--seconds", type=click.FloatRange(0), default=2, help="For each mode, about.")
@deadline_option
@click.option("--compiled/--no-compiled", default=False, help="The modes that are compiled too.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(
    mlp,
    features,
    layers,
    batch,
    length,
    dtype,
    device,
    threads,
    seconds,
    deadline,
    compiled,
    output,
) -> None:
    end = monotonic() + deadline
    prepare(threads)
    machine = environment.describe(device)
    with torch.device(device):
        block = Block(features, mlp, layers).to(DTYPES[dtype])
    x, dy = (torch.randn(batch, length, features, dtype=DTYPES[dtype]).to(device) for _ in "12")
    inputs = Inputs((x,), dy)
    expected = exact_results(block, inputs, mlp)
    of_torch = error(results(block, run_of(block, "torch", TORCH[mlp]), inputs), expected)
    modes = {k: v for k, v in MODES[mlp].items() if k != "mxfp8" or dtype in IN_MXFP8}
    sizes = {"mlp": mlp, "features": features, "layers": layers, "tokens": batch * length}
    sizes["dtype"] = dtype
    path = output / f"block-{mlp}-{dtype}-{runs.slug(machine)}.csv"
    rows: list[dict] = []
    for group in (modes, COMPILED[mlp]) if compiled else (modes,):
        if monotonic() > end:
            print(f"skipped: {', '.join(group)}: {NO_TIME}")
            continue
        functions = {name: run_of(block, name, mode) for name, mode in group.items()}
        for name, function in functions.items():
            check(name, error(results(block, function, inputs), expected), of_torch)
        rows += measure(block, inputs, functions, seconds)
        runs.write_csv([sizes | row for row in rows], path)
    title = f"{machine['device']}, {torch.get_num_threads()} threads: " + ", ".join(
        f"{name} {value}" for name, value in sizes.items()
    )
    Console(width=120).print(table_of(rows, layers * batch * length * block.hidden, title))
    print(path)


if __name__ == "__main__":
    main()
