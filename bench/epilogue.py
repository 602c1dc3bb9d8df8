"""``python -m bench.epilogue``: what a gate costs next to the matrix products of its layer, and
what a product that computes the gate itself saves.

Forward is x W1^T + b and its GELU, by tanh as cuBLAS has it; backward the products around the gate,
dy W2, dz W1 and dz^T x, and its gradients dz and db. Prints a table for each size and writes the
times as CSV. Before timing, results are checked against float64.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bench import environment, runs, timing
from bench.measure import NO_TIME
from bench.operators import Call
from bench.options import deadline_option, device_option, prepare
from bench.workloads import DTYPES
from gelu_kernels import functional

GATE = "normal_tanh"
Shape = tuple[int, int, int]  # tokens, features, elements of the hidden layer
SHAPES = ("8192x4096x16384", "2048x1024x4096")
# A result is rounded once or twice; cuBLAS computes tanh by an instruction.
ROUNDINGS = 4
ALONE, GATED, FUSED = "addmm", "addmm, gelu_kernels", "_addmm_activation"
GRADIENT = "gate's gradients, gelu_kernels"
Layer = Callable[[Tensor, Tensor, Tensor], Tensor]  # of x, the weight and the bias


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


FORWARD: dict[str, Layer] = {
    ALONE: lambda x, w, b: torch.addmm(b, x, w.t()),
    GATED: lambda x, w, b: functional.gelu(torch.addmm(b, x, w.t()), approximate="tanh"),
    "mm, gelu_kernels with the bias": lambda x, w, b: functional.bias_gelu(
        x @ w.t(), b, approximate="tanh"
    ),
    FUSED: lambda x, w, b: torch._addmm_activation(b, x, w.t(), use_gelu=True),
}
# Options of torch.compile: it chooses the fastest, or takes a kernel of its own in any case.
INDUCTOR: dict[str, dict[str, object]] = {
    "Inductor, max-autotune": {"max_autotune": True},
    "Inductor, Triton alone": {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"},
}


def shape_of(text: str) -> Shape:
    tokens, features, hidden = map(int, text.split("x"))
    return tokens, features, hidden


def random(*shape: int, like: Tensor) -> Tensor:
    """Of about unit variance after a product."""
    return torch.randn(shape, device=like.device, dtype=like.dtype) * shape[-1] ** -0.5


def check(name: str, found: Tensor, exact: Tensor) -> None:
    error = float((found.double() - exact).abs().max() / exact.abs().max())
    allowed = ROUNDINGS * torch.finfo(found.dtype).eps
    if not error <= allowed:
        raise click.ClickException(f"{name}: an error of {error:.2g}, more than {allowed:.2g}")


def forward_calls(
    layers: dict[str, Layer], x: Tensor, weight: Tensor, bias: Tensor
) -> dict[str, Call]:
    """Checked. Inductor may fail in any way."""
    exact = torch.addmm(bias.double(), x.double(), weight.double().t())
    gated = F.gelu(exact, approximate="tanh")
    calls = {}
    for name, layer in layers.items():
        try:
            check(name, layer(x, weight, bias), exact if name == ALONE else gated)
        except Exception as error:
            if name not in INDUCTOR:
                raise
            print(f"not compared: {name} ({type(error).__name__}: {error})")
            continue
        calls[name] = partial(layer, x, weight, bias)
    return calls


def backward_calls(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> dict[str, Call]:
    """Checked."""
    down = random(x.shape[1], weight.shape[0], like=x)
    z = x @ weight.t()
    dh = dy @ down
    gradient = partial(torch.ops.gelu_kernels.gate_backward_bias, dh, z, bias, GATE)
    dz, _ = gradient()
    inner = (z + bias).double()
    check(GRADIENT, dz, torch.ops.aten.gelu_backward(dh.double(), inner, approximate="tanh"))
    return {
        "dy W2": partial(torch.mm, dy, down),
        GRADIENT: gradient,
        "dz W1": partial(torch.mm, dz, weight),
        "dz^T x": partial(torch.mm, dz.t(), x),
    }


def inductor(device: str) -> dict[str, Layer]:
    torch.compiler.reset()
    few = list(INDUCTOR) if device == "cuda" else list(INDUCTOR)[:1]  # Triton needs a GPU
    return {name: torch.compile(linear_gelu, options=INDUCTOR[name]) for name in few}


def measure(
    shape: Shape, dtype: str, device: str, seconds: float, compiled: bool
) -> Iterator[dict[str, object]]:
    tokens, features, hidden = shape
    clock = timing.cpu_clock if device == "cpu" else timing.cuda_clock
    x = torch.randn(tokens, features, device=device, dtype=DTYPES[dtype])
    weight, bias = random(hidden, features, like=x), random(hidden, like=x)
    dy = torch.randn_like(x)
    layers = inductor(device) if compiled else FORWARD
    found = {"forward": forward_calls(layers, x, weight, bias)}
    if not compiled:
        found["backward"] = backward_calls(x, weight, bias, dy)
    for label, calls in found.items():
        sides = {name: [call] for name, call in calls.items()}
        for name, (low, us, high) in timing.quartiles(sides, clock, seconds=seconds).items():
            sizes = {"tokens": tokens, "features": features, "hidden": hidden, "dtype": dtype}
            yield sizes | {"pass": label, "what": name, "us": us, "low": low, "high": high}


def shares(rows: list[dict]) -> dict[str, float]:
    """Of the time of a pass over a layer, what the separate pass of the gate costs."""
    us = {(row["pass"], row["what"]): float(row["us"]) for row in rows}
    found = {}
    if ("forward", GATED) in us:
        found["forward"] = 1 - us["forward", ALONE] / us["forward", GATED]
    if ("backward", GRADIENT) in us:
        backward = sum(t for (label, _), t in us.items() if label == "backward")
        found["backward"] = us["backward", GRADIENT] / backward
    return found


def table_of(rows: list[dict], title: str) -> Table:
    table = Table("pass", "what", title=title)
    for name in ("us", "TFLOP/s", f"time of “{GATED}”"):
        table.add_column(name, justify="right")
    gated = {row["pass"]: row["us"] for row in rows if row["what"] == GATED}
    for row in rows:
        product = 2 * row["tokens"] * row["features"] * row["hidden"]
        table.add_row(
            row["pass"],
            row["what"],
            f"{row['us']:.1f} ± {(row['high'] - row['low']) / 2:.1f}",
            "" if row["what"] == GRADIENT else f"{product / row['us'] / 1e6:.0f}",
            f"{row['us'] / gated[row['pass']]:.3f}" if row["pass"] in gated else "",
        )
    for label, share in shares(rows).items():
        table.add_row(label, "share of the gate's own pass", f"{share:.1%}", "", "")
    return table


@click.command(help=__doc__)
@click.option("--shape", "shapes", multiple=True, default=SHAPES, show_default=True)
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), default="bfloat16", show_default=True)
@device_option
@click.option("--seconds", type=click.FloatRange(0), default=0.3, help="For each side, about.")
@deadline_option
@click.option("--compiled/--no-compiled", default=False, help="Inductor's too.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(shapes, dtype, device, seconds, deadline, compiled, output) -> None:
    end = monotonic() + deadline
    prepare(None)
    machine = environment.describe(device)
    path = output / f"epilogue-{dtype}-{runs.slug(machine)}.csv"
    rows: dict[str, list[dict]] = {shape: [] for shape in shapes}
    for by_inductor in (False, True) if compiled else (False,):  # it takes long
        for text, found in rows.items():
            if monotonic() > end:
                print(f"skipped: {text}{', compiled' if by_inductor else ''}: {NO_TIME}")
                continue
            found += measure(shape_of(text), dtype, device, seconds, by_inductor)
            runs.write_csv([row for found in rows.values() for row in found], path)
    console = Console(width=120)
    for text, found in rows.items():
        if found:
            console.print(table_of(found, f"{machine['device']}: {text}, {dtype}"))
    print(path)


if __name__ == "__main__":
    main(prog_name="python -m bench.epilogue")
