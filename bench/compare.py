"""``python -m bench.compare A B``: compares two reports of ``python -m bench`` or ``make gpu``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import click
from rich.console import Console
from rich.table import Table

from bench.runs import CELL, FIELDS, load

NAMES = [*FIELDS][: CELL + 1]  # of a cell and a side
Key = tuple[str, ...]  # the values of these


@dataclass(frozen=True)
class Report:
    machine: dict[str, object]
    quartiles: dict[Key, list[float]]  # microseconds; the later of two rows with the same key


def read(path: Path) -> Report:
    try:
        found = load(path)
        machine = dict(found["machine"])
        versions = dict(machine.pop("versions", {}))
        quartiles = {
            tuple(str(row[name]) for name in NAMES): [row["low"], row["us"], row["high"]]
            for row in found["results"]
        }
        if not all(0 < low <= median <= high for low, median, high in quartiles.values()):
            raise ValueError("quartiles are not in order")
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{path} is no report of python -m bench: {type(error).__name__}: {error}"
        raise click.ClickException(message) from error
    return Report(machine | versions, quartiles)


@dataclass(frozen=True)
class Ratio:
    """B's time over A's: of the medians, and the range of the ratio while each time lies between
    its quartiles."""

    median: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        return not self.low <= 1 <= self.high


def ratio(a: list[float], b: list[float]) -> Ratio:
    return Ratio(b[1] / a[1], b[0] / a[2], b[2] / a[0])


def differences(a: Report, b: Report) -> Table:
    found = Table("", "A", "B", title="Measured on", title_justify="left")
    for name in dict.fromkeys([*a.machine, *b.machine]):
        values = [str(report.machine.get(name, "")) for report in (a, b)]
        if values[0] != values[1] or name == "device":
            found.add_row(name, *values)
    return found


def rows(a: Report, b: Report, ratios: dict[Key, Ratio]) -> Table:
    found = Table(*NAMES, title="B / A: above 1, B takes longer", title_justify="left")
    for name in ("A, us", "B, us", "B / A", "by the quartiles", ""):
        found.add_column(name, justify="right")
    for key, x in ratios.items():
        medians = (f"{report.quartiles[key][1]:.2f}" for report in (a, b))
        verdict = ("slower" if x.median > 1 else "faster") if x.is_certain else ""
        found.add_row(*key, *medians, f"{x.median:.3f}", f"{x.low:.3f} to {x.high:.3f}", verdict)
    return found


def means(ratios: dict[Key, Ratio]) -> Table:
    """For each operator, pass and side."""
    groups: dict[Key, list[float]] = {}
    for (op, label, *_, side), x in ratios.items():
        groups.setdefault((op, label, side), []).append(x.median)
    found = Table(
        *("op", "pass", "side", "rows", "B / A"), title="Geometric means", title_justify="left"
    )
    for key, values in groups.items():
        found.add_row(*key, str(len(values)), f"{geometric_mean(values):.3f}")
    return found


@click.command(help=__doc__)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
def main(a: Path, b: Path) -> None:
    first, second = read(a), read(b)
    ratios = {
        key: ratio(quartiles, second.quartiles[key])
        for key, quartiles in first.quartiles.items()
        if key in second.quartiles
    }
    console = Console(width=None if sys.stdout.isatty() else 170)
    print(f"A: {a}\nB: {b}")
    console.print(differences(first, second))
    if ratios:
        console.print(rows(first, second, ratios), means(ratios))
    else:
        print("no row is in both")
    for name, report in (("A", first), ("B", second)):
        for key in report.quartiles:
            if key not in ratios:
                print(f"only in {name}: {' '.join(key)}")


if __name__ == "__main__":
    main(prog_name="python -m bench.compare")
