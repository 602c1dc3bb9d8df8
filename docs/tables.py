"""``python -m docs.tables [REPORT...]``: writes the tables of the docs.

A report of ``python -m bench`` or ``make gpu`` is first kept in bench/results, replacing the last
of the same machine. The tables stand in README.md and docs/ between two comments:

    <!-- table: NAME -->
    <!-- end of table -->
"""

import re
from collections.abc import Callable, Iterable, Iterator
from inspect import getdoc
from itertools import product
from pathlib import Path

import click

from bench import runs
from bench.markdown import power_of_2, span, table, two_digits
from bench.measure import OVERHEAD
from bench.operators import EAGER_BACKWARD, GRADIENTS
from docs import api
from docs.families import FAMILIES, family_of
from docs.gpu_tables import of_gpu
from docs.slots import slots
from gelu_kernels import _C, reference
from release import bare
from release import versions as release_versions

OURS = ("gelu_kernels", "cuda", "triton")  # sides; the first is a CPU's
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# Operators and gates, and the same in plain PyTorch.
HEADLINE = {
    ("gelu", "normal"): "F.gelu(x)",
    ("bias_gelu", "normal"): "F.gelu(x + bias)",
    ("geglu", "logistic"): "F.silu(x) * up",
    ("cdf_gate", "normal"): "x * ndtr((x - loc) / scale)",
    ("soi_map", "normal"): "x * bernoulli(ndtr(x))",
}
ONE_KERNEL, OTHERS, ALL = "`F.gelu`, `F.silu`", "others", "all"
Row = tuple[str, ...]  # op, pass, gate, dtype


def row_of(record: dict) -> Row:
    return record["op"], record["pass"], record["gate"], record["dtype"]


def ratios(run: runs.Run, ours: str, theirs: str) -> dict[Row, dict[int, float]]:
    """How many times as long theirs takes, by row and elements."""
    found: dict[tuple[Row, int], dict[str, float]] = {}
    for record in run["results"]:
        found.setdefault((row_of(record), record["elements"]), {})[record["side"]] = record["us"]
    result: dict[Row, dict[int, float]] = {}
    for (row, elements), us in found.items():
        if elements > OVERHEAD and {ours, theirs} <= us.keys():
            result.setdefault(row, {})[elements] = us[theirs] / us[ours]
    return result


def unique(values: Iterable) -> list:
    return list(dict.fromkeys(values))


def machine(run: runs.Run) -> str:
    found = run["machine"]
    threads = f", threads: {found['threads']}" if "threads" in found else ""
    return f"{found['device']}{threads}, torch {found['versions']['torch']}, {found['date']}"


def line_of(row: Row) -> tuple[str, str]:
    """The family and the gates of the line that shows it.

    PyTorch computes some gates in one kernel, F.gelu or F.silu, and others in several. Where that
    decides the speed of an operator, it has two lines.
    """
    op, _, gate, _ = row
    family = family_of(op)
    if op not in EAGER_BACKWARD:
        return family, ALL
    return family, ONE_KERNEL if gate in GRADIENTS else OTHERS


def speed_of(of_device: list[runs.Run], ours: str) -> str:
    """From the runs of one device, such as with one and with two threads."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    sizes: set[int] = set()
    for run in of_device:
        for row, values in ratios(run, ours, "eager").items():
            _, label, _, dtype = row
            line = cells.setdefault(line_of(row), {})
            line.setdefault(f"{dtype} {label}", []).extend(values.values())
            sizes |= values.keys()
    columns = unique(column for line in cells.values() for column in line)
    rows = [
        (*line, *(span(cells[line].get(column, ()), two_digits) for column in columns))
        for line in product(FAMILIES, (ONE_KERNEL, OTHERS, ALL))
        if line in cells
    ]
    elements = " to ".join(map(power_of_2, (min(sizes), max(sizes))))
    title = f"{'; '.join(map(machine, of_device))}; {ours}, {elements} elements."
    return f"{title}\n\n{table(('operator', 'gates', *columns), rows)}"


def compiled(of_device: list[runs.Run], ours: str) -> Iterator[str]:
    found = [ratios(run, ours, "compile") for run in of_device]
    values = [x for rows in found for cell in rows.values() for x in cell.values()]
    if values:
        yield f"Against `torch.compile` of the same formulas: {span(values, two_digits)}.\n"


def speed() -> str:
    """For every device, and every backend that was measured on it."""
    devices: dict[str, list[runs.Run]] = {}
    for run in runs.load_all():
        devices.setdefault(run["machine"]["device"], []).append(run)
    parts = []
    for of_device in devices.values():
        if "compute capability" in of_device[0]["machine"]:
            parts += [of_gpu(run, machine(run)) for run in of_device]
            continue
        sides = {record["side"] for run in of_device for record in run["results"]}
        for ours in (side for side in OURS if side in sides):
            parts += [speed_of(of_device, ours), *compiled(of_device, ours)]
    return "\n".join(parts)


def headline() -> str:
    """Forward and backward in bfloat16, for the largest tensors of each device; on a CPU with one
    thread."""
    columns, machines = {}, []
    for run in runs.load_all():
        if run["machine"].get("threads", 1) == 1:
            sides = {record["side"] for record in run["results"]}
            ours = next(side for side in ("cuda", *OURS) if side in sides)
            columns[run["machine"]["device"]] = ratios(run, ours, "eager")
            machines.append(machine(run))

    def cell(found: dict[Row, dict[int, float]], op: str, gate: str) -> str:
        both = (found[op, label, gate, "bfloat16"] for label in ("forward", "backward"))
        return ", ".join(two_digits(values[max(values)]) for values in both)

    rows = [
        (f"`{eager}`", *(cell(found, *row) for found in columns.values()))
        for row, eager in HEADLINE.items()
    ]
    return f"{table(('PyTorch', *columns), rows)}\n{'; '.join(machines)}.\n"


def gates() -> str:
    """A gate's formula is the docstring of its reference."""
    rows = [
        (
            *(f'`"{name}"`' if name else "" for name in (gate, alias, approximate)),
            getdoc(getattr(reference, gate)).rstrip("."),
        )
        for gate, approximate, alias in _C.gates()
    ]
    return table(("gate=", "alias", "approximate=", "x F(x)"), rows)


def versions() -> str:
    """One row for each release of torch that `make test-versions` has tried."""
    header = ("torch", "Python", "passed", "skipped", "failed", "commit, date")
    rows = []
    for record in release_versions.load():
        failed = record["failure"] + record["error"]
        counts = (f"{n:,}" for n in (record["passed"], record["skipped"], failed))
        made = f"{record['commit'][:7]}, {record['date']}"
        rows.append((record["torch"], record["python"], *counts, made))
    return table(header, rows)


def wheel() -> str:
    """One row for each environment that `make test-wheel` has tried."""
    header = ("torch", "Python", "import torch", "and gelu_kernels", "examples", "loss", "tests")
    rows = []
    for record in bare.load():
        of_torch, ours = (f"{ms:.0f} ms" for ms in record["ms"].values())
        failed = record["failure"] + record["error"]
        tests = f"{record['passed']} passed, {record['skipped']} skipped, {failed} failed"
        row = record["torch"], record["python"], of_torch, ours, str(record["examples"])
        rows.append((*row, record["loss"], tests))
    made = sorted({f"{r['MB']} MB, {r['commit'][:7]}, {r['date']}" for r in bare.load()})
    return f"{table(header, rows)}\nThe wheel: {'; '.join(made)}.\n"


def skipped() -> str:
    found = {record["torch"]: record["skipped because"] for record in release_versions.load()}
    reasons = sorted(set().union(*found.values()))
    rows = [(why, *(str(counts.get(why, 0)) for counts in found.values())) for why in reasons]
    return table(("reason", *found), rows)


TABLES: dict[str, Callable[[], str]] = {
    "api": api.reference,
    "gates": gates,
    "headline": headline,
    "skipped": skipped,
    "slots": slots,
    "speed": speed,
    "versions": versions,
    "wheel": wheel,
}


def pages() -> list[Path]:
    return [runs.ROOT / "README.md", *sorted((runs.ROOT / "docs").glob("**/*.md"))]


def with_tables(text: str) -> str:
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


@click.command(help=__doc__)
@click.argument("reports", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(reports: tuple[Path, ...]) -> None:
    for report in reports:
        print(f"{report} -> {runs.keep(runs.load(report))}")
    for page in pages():
        page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main(prog_name="python -m docs.tables")
