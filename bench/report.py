"""A measurement as tables: one for an operator and a pass, with a line for each gate, dtype and
size."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from bench.operators import OPERATORS
from bench.runs import CELL, FIELDS
from bench.workloads import PASSES, Workload

Records = dict[str, dict]  # of the sides of a cell


def cells(records: Iterable[dict]) -> list[Records]:
    key = itemgetter(*list(FIELDS)[:CELL])
    found: dict[tuple, Records] = {}
    for record in records:
        found.setdefault(key(record), {})[record["side"]] = record
    # The tables have an order of their own.
    ops = list(OPERATORS)
    return [found[k] for k in sorted(found, key=lambda k: (ops.index(k[0]), PASSES.index(k[1])))]


def us(record: dict) -> str:
    """The median, and half of what lies between the quartiles."""
    digits = 2 if record["us"] < 100 else 0
    return f"{record['us']:.{digits}f} ± {(record['high'] - record['low']) / 2:.{digits}f}"


def title(cell: Records) -> tuple[str, str]:
    record = next(iter(cell.values()))
    return record["op"], record["pass"]


def table(op: str, label: str, group: list[Records], backend: str, others: list[str]) -> Table:
    found = Table(title=f"{op}, {label}", title_justify="left", title_style="bold")
    for name in ("gate", "dtype"):
        found.add_column(name)
    for name in ("elements", f"{backend}, us", "GB/s", "% of copy"):
        found.add_column(name, justify="right")
    for name in others:
        found.add_column(f"{name}, us", justify="right")
        found.add_column(f"/{backend}", justify="right", style="bold")
    found.add_column("peak", justify="right")
    found.add_column("saved", justify="right")
    for cell in group:
        if (ours := cell.get(backend)) is None:
            continue
        compared = []
        for name in others:
            record = cell.get(name)
            compared += [us(record), f"{record['us'] / ours['us']:.2f}"] if record else ["", ""]
        memory = [
            " : ".join(decimal(cell[name][what]) for name in (backend, "eager") if name in cell)
            for what in ("peak bytes", "saved bytes")
        ]
        where = [ours["gate"], ours["dtype"], str(ours["elements"])]
        moved = Workload(op, *where[:2], ours["elements"]).bytes_moved(label)
        numbers = [us(ours), f"{moved / ours['us'] / 1000:.1f}", f"{ours['roof']:.0f}"]
        found.add_row(*where, *numbers, *compared, *memory)
    return found


def show(records: list[dict], not_timed: list[dict], backend: str, console: Console) -> None:
    for (op, label), group in groupby(cells(records), key=title):
        group = list(group)
        others = list(dict.fromkeys(side for cell in group for side in cell if side != backend))
        console.print(table(op, label, group, backend, others))
    console.print(
        f"Medians ± half the range of the quartiles. % of copy: {backend}'s rate relative to"
        f" copying as many elements into preallocated memory. Memory: {backend} : eager.\n"
    )
    for record in not_timed:
        if "skipped" in record:
            console.print(f"skipped: {record['skipped']}: {record['because']}")
        else:
            console.print(f"wrong: {record['by']}, {record['wrong']}: {record['because']}")
