"""``python -m bench.quantized``: gates and GLUs in eight bits, compared with plain PyTorch, eager
and compiled.

Prints a table of ratios and writes the records as CSV; an operator's name there ends with its
recipe. Before timing, results are checked against the plain formulas, with the gate in float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from bench import environment, runs, timing
from bench.markdown import power_of_2
from bench.measure import NO_TIME, rotated
from bench.options import (
    Size,
    choice,
    deadline_option,
    device_option,
    prepare,
    sizes,
    threads_option,
)
from bench.records import Cell, records
from bench.workloads import DTYPES, Workload
from gelu_kernels import backend, functional, reference

FLOAT8, LARGEST = torch.float8_e4m3fn, 448.0
MX = ("row", "column", "both")
RECIPES = ("TensorWise", "RowWise", "BlockWise1x128", *MX)
Function = Callable[..., object]


def rounded(t: Tensor) -> Tensor:
    return t.clamp(-LARGEST, LARGEST).to(FLOAT8)


def by_floats(y: Tensor, block: int) -> tuple[Tensor, Tensor]:
    blocks = y.unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1, keepdim=True).float()
    data = rounded(blocks.float() * (LARGEST / amax)).flatten(-2)
    return data, (amax / LARGEST).squeeze(-1)


def mx(y: Tensor) -> tuple[Tensor, Tensor]:
    blocks = y.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).float()
    code = ((amax.view(torch.int32) >> 23) - 8).clamp(0, 254)
    inverse = ((254 - code) << 23).view(torch.float32)
    data = rounded(blocks.float() * inverse).flatten(-2)
    return data, code.to(torch.uint8).squeeze(-1)  # Inductor has no float8_e8m0fnu on a CPU


def chain(y: Tensor, recipe: str, scale: Tensor) -> tuple[Tensor, ...]:
    """As one writes it, for results that are finite and not all zero."""
    match recipe:
        case "TensorWise":
            return rounded(y.float() * (1 / scale)), y.abs().amax().float()
        case "RowWise":
            return by_floats(y, y.shape[-1])
        case "BlockWise1x128":
            return by_floats(y, 128)
        case "row":
            return mx(y)
        case "column":
            return mx(y.t().contiguous())
    return (*mx(y), *mx(y.t().contiguous()))


# Bytes for a number, but for those of a tensor or a row.
SCALES = {"BlockWise1x128": 4 / 128} | dict.fromkeys(MX, 1 / 32)


def options(recipe: str, scale: Tensor) -> dict[str, object]:
    if recipe in MX:
        return {"along": recipe}
    return {"scaling": recipe} | ({"scale": scale} if recipe == "TensorWise" else {})


@dataclass(frozen=True)
class Pass:
    """By torch, in float64, and by this package."""

    op: str
    label: str
    gate: str
    read: int  # matrices
    written: int  # results, without the directions
    results: Function  # to be quantised, of x, up and dy; and others
    exact: Function
    ours: Function
    recipes: tuple[str, ...] = RECIPES

    def cell(self, recipe: str, dtype: str, elements: int) -> Cell:
        directions = 2 if recipe == "both" else 1
        moved = self.read * DTYPES[dtype].itemsize
        moved += self.written * directions * (1 + SCALES.get(recipe, 0))
        names = f"{self.op} {recipe}", self.label, self.gate, dtype, elements
        return Cell(*names, moved=moved * elements)


def silu_gradients(x: Tensor, up: Tensor, dy: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.ops.aten.silu_backward(dy * up, x), dy * F.silu(x)], []


def gelu_gradient(x: Tensor, up: Tensor, dy: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    dx = torch.ops.aten.gelu_backward(dy, x + up[0])
    return [dx], [dx.sum(0)]


def exact_gradients(forward: Function, count: int) -> Function:
    def gradients(x: Tensor, up: Tensor, dy: Tensor) -> list[Tensor]:
        _, vjp = torch.func.vjp(forward, x.double(), up.double())
        return [t.to(x.dtype) for t in vjp(dy.double())[:count]]

    return gradients


PASSES = {
    "gate forward": Pass(
        *("quantized_gate", "forward", "normal", 1, 1),
        lambda x, up, dy: ([F.gelu(x)], []),
        lambda x, up, dy: [reference.gelu(x)],
        lambda x, up, dy, **k: functional.quantized_gate(x, **k),
    ),
    "GLU forward": Pass(
        *("quantized_glu", "forward", "logistic", 2, 1),
        lambda x, up, dy: ([F.silu(x) * up], []),
        lambda x, up, dy: [(reference.logistic(x.double()) * up.double()).to(x.dtype)],
        lambda x, up, dy, **k: functional.quantized_swiglu(x, up, **k),
    ),
    "gate backward with a bias": Pass(
        *("quantized_bias_gate", "backward", "normal", 2, 1),
        gelu_gradient,
        exact_gradients(lambda x, up: reference.normal(x + up[0]), 1),
        lambda x, up, dy, **k: functional.quantized_gate_backward(dy, x, up[0], **k),
        MX,
    ),
    "GLU backward": Pass(
        *("quantized_glu", "backward", "logistic", 3, 2),
        silu_gradients,
        exact_gradients(lambda x, up: reference.logistic(x) * up, 2),
        lambda x, up, dy, **k: functional.quantized_glu_backward(dy, x, up, gate="logistic", **k),
        MX,
    ),
}


def plain(of: Pass, recipe: str, scale: Tensor, *tensors: Tensor) -> list[object]:
    results, others = of.results(*tensors)
    return [chain(y, recipe, scale) for y in results] + others


def check(name: str, recipe: str, scale: Tensor, tensors: list[Tensor]) -> None:
    """One number in a hundred may be the next: products and float32 are not rounded correctly to
    the last bit, and torch rounds 448 / amax twice."""
    of = PASSES[name]
    expected = tree_leaves([chain(y, recipe, scale) for y in of.exact(*tensors)])
    found = tree_leaves(of.ours(*tensors, **options(recipe, scale)))[: len(expected)]
    for a, b in zip(found, expected, strict=True):
        if a.dtype.itemsize == 1:
            a, b = a.view(torch.uint8).float(), b.view(torch.uint8).float()
        wrong = (~torch.isclose(a, b, rtol=1e-5, atol=0)).float().mean()
        if wrong > 0.01:
            raise click.ClickException(f"{name}, {recipe}: {wrong:.2%} of a result is wrong")


def measure(
    name: str, recipe: str, dtype: str, size: Size, device: str, compiled: bool
) -> Iterator[dict]:
    """Records, as many calls rotating through sets of inputs as a GPU needs."""
    of, scale = PASSES[name], torch.tensor(0.01, device=device)
    workload = Workload("gelu", of.gate, dtype, size.elements(dtype))
    sets = [
        [torch.randn(workload.shape, device=device, dtype=DTYPES[dtype]) for _ in range(3)]
        for _ in range(rotated(device, workload))
    ]
    check(name, recipe, scale, sets[0])
    ours = "gelu_kernels" if device == "cpu" else backend.for_nvidia()
    sides = {ours: partial(of.ours, **options(recipe, scale))}
    sides["eager"] = partial(plain, of, recipe, scale)
    if compiled:
        torch.compiler.reset()
        sides["compile"] = torch.compile(sides["eager"], dynamic=True)
    calls = {side: [partial(call, *tensors) for tensors in sets] for side, call in sides.items()}
    cell = of.cell(recipe, dtype, workload.elements)
    return records(cell, calls, [tensors[-1] for tensors in sets], timing.SECONDS)


def table_of(rows: list[dict]) -> Table:
    sizes = dict.fromkeys(row["elements"] for row in rows)
    columns = ("operator", "pass", "dtype", "compared with", *map(power_of_2, sizes))
    table = Table(*columns, title="times as fast as plain PyTorch; of ours, % of a copy's rate")
    lines: dict[tuple[str, ...], dict[int, dict]] = {}
    for row in rows:
        key = row["op"], row["pass"], row["dtype"], row["side"]
        lines.setdefault(key, {})[row["elements"]] = row
    ours = rows[0]["side"] if rows else ""
    for (*key, side), cells in lines.items():
        own = lines[(*key, ours)]
        texts = (
            f"{cell['roof']:.0f} %" if side == ours else f"{cell['us'] / own[size]['us']:.1f}"
            for size, cell in cells.items()
        )
        table.add_row(*key, side, *texts)
    return table


@click.command(help=__doc__)
@choice("--pass", "passes", PASSES, help="Passes.")
@choice("--recipe", "recipes", RECIPES, help="What shares a scale; the last three are MX.")
@choice("--dtype", "dtypes", DTYPES, default=("bfloat16", "float32"), help="Dtypes.")
@sizes(("2^14", "2^18", "2^20", "2^22"))
@click.option("--compile/--no-compile", "compiled", default=True, help="With torch.compile too.")
@device_option
@threads_option
@deadline_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(passes, recipes, dtypes, sizes, compiled, device, threads, deadline, output) -> None:
    end = monotonic() + deadline
    prepare(threads)
    machine = environment.describe(device)
    path = output / f"quantized-{runs.slug(machine)}.csv"
    cells = [x for x in product(passes, recipes, dtypes, sizes) if x[1] in PASSES[x[0]].recipes]
    rows: list[dict] = []
    for cell in tqdm(cells):
        if monotonic() > end:
            print(f"skipped: {' '.join(map(str, cell))}: {NO_TIME}")
            continue
        rows += measure(*cell, device, compiled)
        runs.write_csv(list(runs.cells(rows)), path)
    Console(width=120).print(table_of(rows))
    print(f"{machine['device']}, {torch.get_num_threads()} threads: {path}")


if __name__ == "__main__":
    main()
