"""``python -m bench.coded``: a gate that saves its derivative in 8 or 4 bits, compared with the
same gate saving x, forward and backward, with and without a bias.

Prints a table in Markdown: nanoseconds per element, the ratio to the time with x, and the % of the
rate of a copy; and writes the records as CSV. Before timing, values are checked against those of
the gate that saves x, and gradients within the error of a code.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic

import click
import torch
from torch import Tensor

from bench import environment, runs, timing
from bench.markdown import power_of_2, table, two_digits
from bench.measure import NO_TIME, rotated
from bench.operators import GATES, Call
from bench.options import Size, choice, deadline_option, device_option, prepare, sizes
from bench.records import Cell, records
from bench.workloads import DTYPES, Workload
from gelu_kernels import backend
from gelu_kernels.operators.table import core

ops = torch.ops.gelu_kernels
SAVED = {"x": None, "8 bits": 8, "4 bits": 4, "8 bits, dithered": 8}
# Of a derivative: half a step of the code; a whole one where it is dithered.
ERRORS = {"x": 0, "8 bits": 0.0025, "4 bits": 0.05, "8 bits, dithered": 0.005}
OPERATORS = ("gate", "bias_gate")


def calls(op: str, gate: str, saved: str, x: Tensor, dy: Tensor) -> dict[str, Call]:
    """By pass."""
    bias, bits = x[0].clone() if op == "bias_gate" else None, SAVED[saved]
    summed = "" if bias is None else "_bias"
    if bits is None:
        forward = partial(ops.gate_forward, x, bias, gate)
        backward = getattr(ops, f"gate_backward{summed}")
        return {"forward": forward, "backward": partial(backward, dy, x, bias, gate)}
    seed = torch.tensor(1, device=x.device)
    dithered = (seed, gate, bits, 0.0, True) if "dithered" in saved else (None, gate, bits)
    forward = partial(ops.coded_forward, x, bias, *dithered)
    _, code = forward()
    backward = getattr(ops, f"coded_backward{summed}")
    return {"forward": forward, "backward": partial(backward, dy, code, bits)}


def moved(op: str, saved: str, label: str, workload: Workload) -> float:
    """Bytes."""
    name = f"{'coded' if SAVED[saved] else 'gate'}_{label}"
    if op == "bias_gate" and label == "backward":
        name += "_bias"
    operator = replace(core(name), nibbles=("code",) if SAVED[saved] == 4 else ())
    itemsize = DTYPES[workload.dtype].itemsize
    return operator.bytes_moved(workload.shape, itemsize, () if op == "bias_gate" else ("bias",))


def first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def check(found: dict[str, Call], plain: dict[str, Call], dy: Tensor, saved: str) -> None:
    y, dx = (first(found[label]()) for label in ("forward", "backward"))
    if not torch.equal(y, plain["forward"]()):
        raise click.ClickException(f"saving {saved} changes the value")
    expected = first(plain["backward"]())
    allowed = ERRORS[saved] * dy.abs() + 2 * torch.finfo(dx.dtype).eps * expected.abs().clamp(1)
    if ((dx - expected).abs() > allowed).any():
        raise click.ClickException(f"saving {saved}: a wrong gradient")


def measure(op: str, gate: str, dtype: str, size: Size, device: str) -> Iterator[dict]:
    """Records; an operator's name ends with what it saves."""
    workload = Workload("gelu", gate, dtype, size.elements(dtype))
    sets = [
        [torch.randn(workload.shape, device=device, dtype=DTYPES[dtype]) for _ in range(2)]
        for _ in range(rotated(device, workload))
    ]
    side = "gelu_kernels" if device == "cpu" else backend.for_nvidia()
    found = {saved: [calls(op, gate, saved, *tensors) for tensors in sets] for saved in SAVED}
    for saved, of_sets in found.items():
        check(of_sets[0], found["x"][0], sets[0][1], saved)
    for label, saved in product(("forward", "backward"), SAVED):
        names = f"{op} saving {saved}", label, gate, dtype, workload.elements
        cell = Cell(*names, moved=moved(op, saved, label, workload))
        of_pass = {side: [of_set[label] for of_set in found[saved]]}
        yield from records(cell, of_pass, [dy for _, dy in sets], timing.SECONDS)


def table_of(rows: list[dict]) -> str:
    cells: dict[tuple[str, ...], dict[str, dict]] = {}
    for row in rows:
        op, _, saved = row["op"].partition(" saving ")
        elements = power_of_2(row["elements"])
        key = f"`{op}`, `{row['gate']}`", f"{row['dtype']} {row['pass']}", elements
        cells.setdefault(key, {})[saved] = row

    def text(row: dict, x: dict) -> str:
        ratio = "" if row is x else f", {two_digits(row['us'] / x['us'])}"
        return f"{1e3 * row['us'] / row['elements']:.3g}{ratio} ({row['roof']:.0f} %)"

    lines = [(*key, *(text(found[s], found["x"]) for s in SAVED)) for key, found in cells.items()]
    return table(("operator, gate", "pass", "elements", *SAVED), lines)


@click.command(help=__doc__)
@choice("--op", "operators", OPERATORS)
@choice("--gate", "gates", GATES, default=("normal", "normal_tanh"))
@choice("--dtype", "dtypes", DTYPES, default=("float32", "bfloat16"))
@sizes(("2^18", "2^22"))
@device_option
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@deadline_option
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "bench"))
def main(operators, gates, dtypes, sizes, device, threads, deadline, output) -> None:
    end = monotonic() + deadline
    prepare(threads)
    path = output / f"coded-{runs.slug(environment.describe(device))}.csv"
    rows: list[dict] = []
    for cell in product(operators, gates, dtypes, sizes):
        if monotonic() > end:
            print(f"skipped: {' '.join(map(str, cell))}: {NO_TIME}")
            continue
        rows += measure(*cell, device)
        runs.write_csv(list(runs.cells(rows)), path)
    print(table_of(rows))
    print(path)


if __name__ == "__main__":
    main(prog_name="python -m bench.coded")
