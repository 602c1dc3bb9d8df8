"""``python -m bench.quantized``: gates and GLUs in eight bits on a CPU, compared with plain
PyTorch, eager and compiled.

Prints a table of ratios and writes the times as CSV. Before timing, results are checked against the
plain formulas, with the gate in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from bench import environment, runs, timing
from bench.options import Size, choice, prepare, sizes, threads_option
from bench.workloads import DTYPES, Workload
from gelu_kernels import functional, reference

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


def options(recipe: str, scale: Tensor) -> dict[str, object]:
    if recipe in MX:
        return {"along": recipe}
    return {"scaling": recipe} | ({"scale": scale} if recipe == "TensorWise" else {})


@dataclass(frozen=True)
class Pass:
    """By torch, in float64, and by this package."""

    results: Function  # to be quantised, of x, up and dy; and others
    exact: Function
    ours: Function
    recipes: tuple[str, ...] = RECIPES


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
        lambda x, up, dy: ([F.gelu(x)], []),
        lambda x, up, dy: [reference.gelu(x)],
        lambda x, up, dy, **k: functional.quantized_gate(x, **k),
    ),
    "GLU forward": Pass(
        lambda x, up, dy: ([F.silu(x) * up], []),
        lambda x, up, dy: [(reference.logistic(x.double()) * up.double()).to(x.dtype)],
        lambda x, up, dy, **k: functional.quantized_swiglu(x, up, **k),
    ),
    "gate backward with a bias": Pass(
        gelu_gradient,
        exact_gradients(lambda x, up: reference.normal(x + up[0]), 1),
        lambda x, up, dy, **k: functional.quantized_gate_backward(dy, x, up[0], **k),
        MX,
    ),
    "GLU backward": Pass(
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


def measure(name: str, recipe: str, dtype: str, elements: list[int], compiled: bool) -> list[dict]:
    of, scale = PASSES[name], torch.tensor(0.01)
    sides = {"gelu_kernels": partial(of.ours, **options(recipe, scale))}
    sides["eager"] = partial(plain, of, recipe, scale)
    if compiled:
        torch.compiler.reset()
        sides["compile"] = torch.compile(sides["eager"], dynamic=True)
    found = []
    for count in elements:
        shape = Workload("gelu", "normal", dtype, count).shape
        tensors = [torch.randn(shape).to(DTYPES[dtype]) for _ in range(3)]
        check(name, recipe, scale, tensors)
        calls = {side: [partial(call, *tensors)] for side, call in sides.items()}
        for side, quartiles in timing.quartiles(calls, timing.cpu_clock).items():
            low, us, high = (round(t, 3) for t in quartiles)
            row = {"pass": name, "recipe": recipe, "dtype": dtype, "elements": count, "side": side}
            found.append(row | {"us": us, "low": low, "high": high})
    return found


def table_of(rows: list[dict], sizes: tuple[Size, ...]) -> Table:
    columns = ("pass", "recipe", "dtype", "compared with", *(f"{size}" for size in sizes))
    table = Table(*columns, title="times as fast as plain PyTorch")
    cells: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        cell = cells.setdefault((row["pass"], row["recipe"], row["dtype"]), {})
        cell.setdefault(row["side"], []).append(row["us"])
    for key, sides in cells.items():
        ours = sides.pop("gelu_kernels")
        for side, times in sides.items():
            ratios = (f"{us / own:.1f}" for us, own in zip(times, ours, strict=True))
            table.add_row(*key, side, *ratios)
    return table


@click.command(help=__doc__)
@choice("--pass", "passes", PASSES, help="Passes.")
@choice("--recipe", "recipes", RECIPES, help="What shares a scale; the last three are MX.")
@choice("--dtype", "dtypes", DTYPES, default=("bfloat16", "float32"), help="Dtypes.")
@sizes(("2^14", "2^18", "2^20", "2^22"))
@click.option("--compile/--no-compile", "compiled", default=True, help="With torch.compile too.")
@threads_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(passes, recipes, dtypes, sizes, compiled, threads, output) -> None:
    prepare(threads)
    machine = environment.describe("cpu")
    cells = [x for x in product(passes, recipes, dtypes) if x[1] in PASSES[x[0]].recipes]
    rows: list[dict] = []
    for name, recipe, dtype in tqdm(cells):
        elements = [size.elements(dtype) for size in sizes]
        rows += measure(name, recipe, dtype, elements, compiled)
    path = output / f"quantized-{runs.slug(machine)}.csv"
    runs.write_csv(list(runs.cells(rows)), path)
    Console(width=120).print(table_of(rows, sizes))
    print(f"{machine['device']}, {torch.get_num_threads()} threads: {path}")


if __name__ == "__main__":
    main()
