"""``python -m bench.quantized``: gates and GLUs in eight bits, compared with plain PyTorch, eager
and compiled, and on a GPU with torchao's casts after this package's gates.

Prints a table of ratios and writes the records as CSV; an operator's name there ends with its
recipe. Before timing, results are checked against the plain formulas, with the gate in float64.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from time import monotonic

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from bench import environment, runs, timing, torchao_casts
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
from bench.quantized_passes import PASSES, Inputs, Pass, make_inputs
from bench.quantized_recipes import RECIPES, Recipe, chain
from bench.records import records
from bench.workloads import DTYPES, Workload
from gelu_kernels import backend


def plain(of: Pass, recipe: Recipe, scale: Tensor, inputs: Inputs) -> list[object]:
    """With groups, the host reads their ends."""
    offsets = inputs.offsets if of.has_groups else None
    results, others = of.results(inputs)
    return [chain(y, recipe, scale, offsets) for y in results] + others


def call(of: Pass, recipe: Recipe, scale: Tensor, inputs: Inputs) -> object:
    offsets = {"offsets": inputs.offsets} if of.has_groups else {}
    return of.ours(inputs, **recipe.options(scale), **offsets)


def check(name: str, recipe: str, scale: Tensor, inputs: Inputs) -> None:
    """One number in a hundred may be the next: products and float32 are not rounded correctly to
    the last bit, and torch rounds 448 / amax twice."""
    of, chosen = PASSES[name], RECIPES[recipe]
    offsets = inputs.offsets if of.has_groups else None
    exact = [chain(y, chosen, scale, offsets) for y in of.exact(inputs)]
    expected = tree_leaves(exact)
    found = tree_leaves(call(of, chosen, scale, inputs))[: len(expected)]
    for a, b in zip(found, expected, strict=True):
        if a.dtype.itemsize == 1:
            a, b = a.view(torch.uint8).float(), b.view(torch.uint8).float()
        if of.has_groups:  # ours have room for more blocks
            a = a[:, : b.shape[1]]
        wrong = (~torch.isclose(a, b, rtol=1e-5, atol=0)).float().mean()
        if a.shape != b.shape or wrong > 0.01:
            raise click.ClickException(f"{name}, {recipe}: {wrong:.2%} of a result is wrong")


@lru_cache(maxsize=1)
def compiled_plain(name: str, recipe: str, dtype: str) -> Callable[[Tensor, Inputs], list[object]]:
    """For all sizes: compiling takes longer than measuring."""
    torch.compiler.reset()
    return torch.compile(partial(plain, PASSES[name], RECIPES[recipe]), dynamic=True)


def measure(
    name: str, recipe: str, dtype: str, size: Size, device: str, compiled: bool
) -> Iterator[dict]:
    """Records, as many calls rotating through sets of inputs as a GPU needs."""
    of, chosen, scale = PASSES[name], RECIPES[recipe], torch.tensor(0.01, device=device)
    workload = Workload("gelu", of.gate, dtype, size.elements(dtype))
    sets = [make_inputs(workload.shape, dtype, device) for _ in range(rotated(device, workload))]
    check(name, recipe, scale, sets[0])
    ours = "gelu_kernels" if device == "cpu" else backend.for_nvidia()
    sides = {ours: partial(call, of, chosen, scale), "eager": partial(plain, of, chosen, scale)}
    if compiled:
        sides["compile"] = partial(compiled_plain(name, recipe, dtype), scale)
    if device != "cpu" and (torchao := torchao_casts.chain(name, chosen)):
        sides["torchao"] = torchao
    calls = {side: [partial(run, inputs) for inputs in sets] for side, run in sides.items()}
    cell = of.cell(recipe, dtype, workload.elements)
    return records(cell, calls, [inputs.dy for inputs in sets], timing.SECONDS)


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
@choice(
    "--recipe",
    "recipes",
    RECIPES,
    help="What shares a scale, and its direction; the last three are MX.",
)
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
