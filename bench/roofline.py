"""``python -m bench.roofline``: how near each kernel is to the speed of a copy, predicted.

It needs no GPU. A kernel's machine code has its instructions for an element, machines.py has the
speed of each resource of a GPU, and the resource that takes longest binds. launches.py adds what
that leaves out, for tensors of a size: the wait for memory, and other kernels. A measurement of the
same kernel, where there is one, is shown next to the prediction.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from bench.calibration import case_of
from bench.markdown import span
from bench.options import choice
from bench.runs import RESULTS, load_all
from machine_code import budgets, cuda_code
from machine_code.cases import BACKENDS, DTYPES, GATES, KERNELS, PREDICTED, Case
from machine_code.launches import Launch
from machine_code.machines import LANES, MACHINES, Machine, Prediction
from machine_code.sass import Kernel
from machine_code.vector_kernels import VectorKernel, busiest, vector_kernels
from machine_code.work import work_of


class Need(NamedTuple):
    slots: float
    instructions: dict[str, float]  # by name
    kernel: VectorKernel | None = None  # that was compiled


Needs = dict[Case, Need]


@dataclass(frozen=True)
class Row:
    machine: Machine
    case: Case
    predicted: Prediction
    launches: list[Launch]  # of each size
    measured: list[float | None]  # % of a copy's speed, of each size

    def as_json(self) -> dict[str, object]:
        return {
            "machine": self.machine.name,
            **self.case._asdict(),
            "predicted picoseconds": self.predicted.picoseconds,
            "predicted bound": self.predicted.bound,
            "predicted % of roof": self.predicted.percent,
            "predicted of launches": [launch.as_json() for launch in self.launches],
            "measured % of roof": self.measured,
        }


def allowed(architecture: str) -> Needs:
    return {case: Need(slots[architecture], {}) for case, slots in budgets.read().items()}


def kernels_of(backend: str, architecture: str, cubin: Path | None) -> list[Kernel]:
    if missing := BACKENDS[backend].missing_tools():
        raise click.ClickException(f"{backend} needs {', '.join(missing)}; see --budgets")
    if cubin:
        return cuda_code.kernels_in(cubin)
    return BACKENDS[backend].kernels(architecture)


def compiled(architecture: str, cases: list[Case], cubin: Path | None = None) -> Needs:
    needs = {}
    for backend in {case.backend for case in cases}:
        kernels = kernels_of(backend, architecture, cubin)
        found = busiest(vector_kernels(kernels, cases))
        needs |= {case: Need(x.slots, x.instructions, x) for case, x in found.items()}
    return needs


def measurements(results: Path, device: str, mib: int) -> dict[Case, float]:
    """By the run that is kept of this device, of tensors of this size."""
    found = {}
    for run in load_all(results):
        if run["machine"]["device"] != device:
            continue
        for x in run["results"]:
            case = case_of(x) if x["side"] in BACKENDS else None
            if case and x["elements"] * case.itemsize == mib * 2**20:
                found.setdefault(case, x["roof"])
    return found


def rows_of(
    machine: Machine, cases: list[Case], needs: Needs, results: Path, sizes: list[int]
) -> list[Row]:
    measured = [measurements(results, machine.device, mib) for mib in sizes]
    rows = []
    for case in cases:
        if case not in needs:  # in a cubin
            continue
        slots, instructions, kernel = needs[case]
        predicted = machine.predict(case.moved, slots, instructions)
        launches = []
        if kernel:
            work = work_of(kernel, machine.architecture)
            launches = [Launch(machine, case, work, mib) for mib in sizes]
        rows.append(Row(machine, case, predicted, launches, [x.get(case) for x in measured]))
    return rows


def assumptions(machines: list[Machine]) -> Table:
    table = Table("machine", "what", "value", "source", title="The predictions rest on this")
    for machine in machines:
        names = ["processors", "clock, GHz", "bandwidth, TB/s", "copy, TB/s"]
        names += ["latency, cycles", "loads that fill the memory, kB for a processor"]
        values = [machine.processors, machine.clock, machine.bandwidth, machine.copied]
        values += [machine.latency, machine.in_flight]
        for name, value, source in zip(names, values, machine.sources, strict=True):
            table.add_row(machine.name, name, str(value), source)
    return table


def predictions(machine: Machine, rows: list[Row], sizes: list[int]) -> Table:
    table = Table(title=f"{machine.name}: predicted, not measured; picoseconds for an element")
    seen = {name for row in rows for name in row.predicted.picoseconds}
    times = [name for name in ("memory", *LANES[machine.architecture]) if name in seen]
    for name in ("kernel", "backend"):
        table.add_column(name, no_wrap=True)
    percents = [f"% at {mib} MiB" for mib in sizes]
    for name in (*times, "bound", "% of roof", "warps", *percents):
        table.add_column(f"predicted\n{name}", justify="right")
    for name in percents:
        table.add_column(f"measured\n{name}", justify="right")
    for row in rows:
        found = row.predicted.picoseconds
        launched = [f"{launch.percent:.1f}" for launch in row.launches] or [""] * len(sizes)
        table.add_row(
            *(row.case.name, row.case.backend),
            *(f"{found[name]:.2f}" if name in found else "" for name in times),
            *(row.predicted.bound, f"{row.predicted.percent:.1f}"),
            f"{row.launches[0].work.resident_warps}" if row.launches else "",
            *launched,
            *("" if x is None else f"{x:.1f}" for x in row.measured),
        )
    return table


def families(machine: Machine, rows: list[Row], sizes: list[int]) -> Table:
    """The least and the most over gates."""
    table = Table(title=f"{machine.name}: predicted, not measured; % of a copy's speed, all gates")
    for name in ("kernel", "backend"):
        table.add_column(name, no_wrap=True)
    for name in ("warps", *(f"{mib} MiB" for mib in sizes)):
        table.add_column(f"predicted\n{name}", justify="right")
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.launches:
            name = row.case._replace(gate="").name
            groups.setdefault((name, row.case.backend), []).append(row)
    for key, of_family in groups.items():
        launches = list(zip(*(row.launches for row in of_family), strict=True))
        warps = span(x.work.resident_warps for x in launches[0])
        table.add_row(*key, warps, *(span(x.percent for x in of_size) for of_size in launches))
    return table


@click.command(context_settings={"show_default": True})
@choice("--machine", "machines", MACHINES)
@choice("--op", "ops", [op.name for op in KERNELS])
@choice("--gate", "gates", GATES)
@choice("--dtype", "dtypes", DTYPES)
@choice("--backend", "backends", BACKENDS)
@click.option("--bias/--no-bias", "biased", default=None, help="Only with or without; else both.")
@click.option("--budgets", "bounds", is_flag=True, help="The recorded slots; compiles nothing.")
@choice("--mib", "sizes", ("64", "256", "1024"), ("64", "256"), "Of each tensor.")
@click.option("--cubin", type=click.Path(path_type=Path), help="CUDA's kernels in this file alone.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
@click.option("--json", "output", type=click.File("w"), help="Write the same to a file.")
def main(
    machines, ops, gates, dtypes, backends, biased, bounds, sizes, cubin, results, output
) -> None:
    """Predict, without a GPU, how near each kernel is to the speed of a copy."""
    known = budgets.read().keys() if bounds else set(PREDICTED)
    cases = [
        x
        for x in PREDICTED
        if x in known and x.op in ops and x.dtype in dtypes and x.backend in backends
        if x.gate in ("", *gates) and biased in (None, x.biased)  # some operators have no gate
        if not (cubin and x.backend != "cuda")
    ]
    if not cases:
        raise click.UsageError("no kernel is all of that")
    mib = [int(size) for size in sizes]
    needs = {}
    for architecture in dict.fromkeys(MACHINES[name].architecture for name in machines):
        try:
            found = allowed(architecture) if bounds else compiled(architecture, cases, cubin)
        except LookupError as error:
            click.echo(f"without {architecture}: {error}", err=True)
        else:
            needs[architecture] = found
    chosen = [machine for name in machines if (machine := MACHINES[name]).architecture in needs]
    console = Console(width=None if sys.stdout.isatty() else 190)  # whole lines for a file
    console.print(assumptions(chosen))
    rows = []
    for machine in chosen:
        rows.append(rows_of(machine, cases, needs[machine.architecture], results, mib))
        console.print(predictions(machine, rows[-1], mib))
        if not bounds:
            console.print(families(machine, rows[-1], mib))
    if output:
        found = [row.as_json() for of_machine in rows for row in of_machine]
        json.dump({"machines": list(map(asdict, chosen)), "predicted": found}, output, indent=1)


if __name__ == "__main__":
    main()
