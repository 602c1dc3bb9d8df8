"""``python -m bench.calibration``: the model of a launch (machine_code/launches.py) beside what an
H200 measured, from the kernels as they were then. It needs no GPU and no compiler.

What the model takes of these kernels is in bench/results/nvidia-h200-kernels.csv. After another run
of the benchmark ``--record`` writes it anew, from the library that was measured.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from statistics import median

import click
import torch
from rich.console import Console
from rich.table import Table

from bench.runs import RESULTS, load, write_csv
from gelu_kernels.operators.table import PUBLIC, core
from gelu_kernels.operators.types import PublicOperator
from machine_code import cuda_code, launches
from machine_code.cases import PREDICTED, VECTORS, Case, has_gate
from machine_code.launches import FITTED, Fitted, Launch
from machine_code.machines import MACHINES
from machine_code.vector_kernels import busiest, vector_kernels
from machine_code.work import Work, work_of

H200 = MACHINES["H200"]
RUN = RESULTS / "nvidia-h200.json"
KERNELS = RESULTS / "nvidia-h200-kernels.csv"
FIELDS = ("op", "gate", "dtype", "biased")  # of a case of CUDA
LEAST_BYTES = 2**26  # of a tensor
MOST = 5  # points of deviation
PIPES = ("IMAD", "FMA", "ALU", "MUFU")
NUMBERS = [name for name in Work._fields if name != "instructions"]


def form_of(op: PublicOperator, direction: str) -> tuple[str, bool]:
    """The core operator whose kernel a pass calls, and whether it has vectors along the columns.
    Halves of one tensor have the kernel of two tensors."""
    called = core(getattr(op, direction))
    tensors = {**called.inputs, **called.outputs}
    vectors = VECTORS.keys() & op.operands
    has_vectors = any({name, f"d{name}"} & tensors.keys() for name in vectors)
    return called.name.replace("_halves", ""), has_vectors


FORMS = {
    (op.label, direction): (op, *form_of(op, direction))
    for op, direction in product(PUBLIC, ("forward", "backward"))
}


def case_of(record: dict) -> Case | None:
    """None if the record is of something else."""
    if (record["op"], record["pass"]) not in FORMS:
        return None
    _, op, has_vectors = FORMS[record["op"], record["pass"]]
    gate = record["gate"] if has_gate(core(op)) else ""
    return Case(op, gate, record["dtype"], has_vectors, record["side"])


def small_kernels(record: dict) -> int:
    """Those that torch adds: the gradient of a number is summed from that of a vector; the SOI
    map's for a location and a scale are zeros."""
    op, *_ = FORMS[record["op"], record["pass"]]
    if record["pass"] == "forward":
        return 0
    zeros = {"loc", "scale"} & set(op.operands) if op.family == "soi" else ()
    return len(op.single) + len(zeros)


def read_works(path: Path = KERNELS) -> dict[Case, Work]:
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            op, gate, dtype, biased = (row[name] for name in FIELDS)
            case = Case(op, gate, dtype, biased == "True", "cuda")
            numbers = {name: int(row[name]) for name in NUMBERS}
            pipes = {name: float(row[name]) for name in PIPES}
            instructions = {name: x for name, x in pipes.items() if x}
            found[case] = Work(**numbers, instructions=instructions)
    return found


def write_works(works: dict[Case, Work], path: Path = KERNELS) -> None:
    rows = []
    for case, work in works.items():
        numbers = {name: getattr(work, name) for name in NUMBERS}
        pipes = {name: f"{work.instructions.get(name, 0):g}" for name in PIPES}
        rows.append({name: getattr(case, name) for name in FIELDS} | numbers | pipes)
    write_csv(rows, path)


@dataclass(frozen=True)
class Compared:
    """A launch, and the record of it."""

    launch: Launch
    record: dict

    @cached_property
    def deviation(self) -> float:
        """Predicted less measured, in points of a copy's speed."""
        return self.launch.percent - self.record["roof"]

    @property
    def is_between_quartiles(self) -> bool:
        x = self.record
        least, most = (x["roof"] * x["us"] / x[quartile] for quartile in ("high", "low"))
        return least <= self.launch.percent <= most

    @property
    def columns(self) -> list[str]:
        x = self.record
        cell = [x["op"], x["pass"], x["gate"], x["dtype"], f"{self.launch.mib:.0f}"]
        numbers = [self.launch.percent, x["roof"], self.deviation]
        warps = self.launch.work.resident_warps
        return [*cell, str(warps), *(f"{number:.1f}" for number in numbers)]


def is_off(row: Compared) -> bool:
    return abs(row.deviation) > MOST and not row.is_between_quartiles


def tensor_bytes(record: dict) -> int:
    return record["elements"] * getattr(torch, record["dtype"]).itemsize


@cache
def records() -> list[dict]:
    """Of forward and backward passes of tensors that no cache holds."""
    ours = [x for x in load(RUN)["results"] if x["side"] == "cuda" and case_of(x)]
    return [x for x in ours if tensor_bytes(x) >= LEAST_BYTES]


def compared(works: dict[Case, Work], fitted: Fitted = FITTED) -> list[Compared]:
    found = []
    for record in records():
        case, mib = case_of(record), tensor_bytes(record) / 2**20
        launch = Launch(H200, case, works[case], mib, small_kernels(record), True, fitted)
        found.append(Compared(launch, record))
    return found


def fit(works: dict[Case, Work]) -> Fitted:
    """By least squares of the deviations. A row whose turns fell on either side of the prediction
    counts as met."""
    from scipy.optimize import least_squares

    start = FITTED

    def fitted(shares: Iterable[float]) -> Fitted:
        return Fitted(*(share * x for share, x in zip(shares, start, strict=True)))

    def deviations(shares: Iterable[float]) -> list[float]:
        rows = compared(works, fitted(shares))
        return [row.deviation * (is_off(row) or abs(row.deviation) <= MOST) for row in rows]

    found = least_squares(deviations, [1.0] * len(start), diff_step=1e-4).x
    return Fitted(*(round(float(x), 3) for x in fitted(found)))


def copies() -> dict[float, tuple[float, float]]:
    """Of tensors of so many MiB: a copy's TB/s, as the model has it and as it was measured, on
    average over the records."""
    found: dict[float, list[float]] = {}
    for x in records():
        moved = x["elements"] * case_of(x).moved
        found.setdefault(tensor_bytes(x), []).append(100 * moved / x["us"] / x["roof"] / 1e6)
    return {
        tensor / 2**20: (
            2 * tensor / (launches.COPY_START + 2 * tensor / H200.copied / 1e6) / 1e6,
            math.fsum(speeds) / len(speeds),
        )
        for tensor, speeds in found.items()
    }


def record_works() -> None:
    """Of the kernels that were measured."""
    kernels = cuda_code.kernels(H200.architecture)
    found = busiest(vector_kernels(kernels, PREDICTED))
    wanted = dict.fromkeys(map(case_of, records()))
    write_works({case: work_of(found[case], H200.architecture) for case in wanted})


def table(rows: list[Compared], title: str) -> Table:
    result = Table(title=title)
    for name in ("operator", "pass", "gate", "dtype"):
        result.add_column(name, no_wrap=True)
    for name in ("MiB", "warps", "predicted", "measured", "difference"):
        result.add_column(name, justify="right")
    for row in rows:
        result.add_row(*row.columns)
    return result


@click.command(help=__doc__)
@click.option("--record", "records_kernels", is_flag=True, help="Write the kernels of the library.")
@click.option("--fit", "fits", is_flag=True, help="Print the parameters of least squares.")
@click.option("--worst", type=int, default=20, show_default=True, help="Rows of the first table.")
@click.option("--all", "prints_all", is_flag=True, help="Print every row as well.")
def main(records_kernels: bool, fits: bool, worst: int, prints_all: bool) -> None:
    if records_kernels:
        record_works()
    works = read_works()
    if fits:
        click.echo(fit(works))
    rows = compared(works)
    console = Console(width=120)
    title = f"{H200.name}: predicted and measured, % of a copy's speed"
    if prints_all:
        console.print(table(rows, title))
    by_size = sorted(rows, key=lambda row: -abs(row.deviation))
    console.print(table(by_size[:worst], f"{title}: the rows farthest apart"))
    deviations = [abs(row.deviation) for row in rows]
    click.echo(f"{len(rows)} rows: median difference {median(deviations):.1f} points,")
    click.echo(f"more than {MOST} points: {sum(x > MOST for x in deviations)},")
    click.echo(f"of these not between the quartiles: {sum(is_off(row) for row in rows)}")
    for mib, (modelled, measured) in sorted(copies().items()):
        click.echo(f"a copy of {mib:.0f} MiB: {modelled:.2f} TB/s in the model, {measured:.2f}")


if __name__ == "__main__":
    main()
