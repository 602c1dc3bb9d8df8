"""``python -m bench.roofline``: how near each kernel is to the speed of a copy, predicted.

It needs no GPU. A kernel's machine code has its instructions for an element, machines.py has the
speed of each resource of a GPU, and the resource that takes longest binds. launches.py adds what
that leaves out, for tensors of a size: latency, waves of blocks, and other kernels. A measurement
of the same kernel, where there is one, is shown next to the prediction.
"""

import json
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from bench.options import choice
from bench.runs import RESULTS, load_all
from gelu_kernels.operators.table import PUBLIC, core
from gelu_kernels.operators.types import CoreOperator, PublicOperator
from machine_code import budgets
from machine_code.cases import BACKENDS, CASES, DTYPES, GATES, OPERATORS, VECTORS, Case, has_gate
from machine_code.launches import Launch
from machine_code.machines import LANES, MACHINES, Machine, Prediction
from machine_code.vector_kernels import VectorKernel, busiest, vector_kernels


def kernel_of(op: PublicOperator, direction: str) -> tuple[CoreOperator, bool]:
    """The core operator, and whether it has a bias or other vectors."""
    called = core(getattr(op, direction))
    tensors = {**called.inputs, **called.outputs}
    vectors = VECTORS.keys() & op.operands
    return called, any({name, f"d{name}"} & tensors.keys() for name in vectors)


# By a record's operator and pass.
MEASURED = {
    (op.label, direction): kernel_of(op, direction)
    for op, direction in product(PUBLIC, ("forward", "backward"))
    if core(getattr(op, direction)) in OPERATORS
}


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
    launch: Launch | None
    measured: float | None  # % of a copy's speed

    def as_json(self) -> dict[str, object]:
        return {
            "machine": self.machine.name,
            **self.case._asdict(),
            "predicted picoseconds": self.predicted.picoseconds,
            "predicted bound": self.predicted.bound,
            "predicted % of roof": self.predicted.percent,
            "predicted of a launch": self.launch and self.launch.as_json(),
            "measured % of roof": self.measured,
        }


def allowed(architecture: str) -> Needs:
    return {case: Need(slots[architecture], {}) for case, slots in budgets.read().items()}


def compiled(architecture: str, cases: list[Case]) -> Needs:
    needs = {}
    for backend in {case.backend for case in cases}:
        if missing := BACKENDS[backend].missing_tools():
            raise click.ClickException(f"{backend} needs {', '.join(missing)}; see --budgets")
        kernels = BACKENDS[backend].kernels(architecture)
        found = busiest(vector_kernels(kernels))
        needs |= {case: Need(x.slots, x.instructions, x) for case, x in found.items()}
    return needs


def measurements(results: Path, device: str) -> dict[Case, float]:
    """By the run that is kept of this device: of the largest tensors."""
    found = {}
    for run in load_all(results):
        if run["machine"]["device"] != device:
            continue
        ours = [x for x in run["results"] if x["side"] in BACKENDS]
        for x in sorted(ours, key=lambda x: x["elements"]):
            if (x["op"], x["pass"]) in MEASURED:
                op, biased = MEASURED[x["op"], x["pass"]]
                gate = x["gate"] if has_gate(op) else ""
                found[Case(op.name, gate, x["dtype"], biased, x["side"])] = x["roof"]
    return found


def rows_of(
    machine: Machine, cases: list[Case], needs: Needs, results: Path, mib: int = 256
) -> list[Row]:
    measured = measurements(results, machine.device)
    rows = []
    for case in cases:
        slots, instructions, kernel = needs[case]
        predicted = machine.predict(case.moved, slots, instructions)
        launch = Launch(machine, kernel, mib) if kernel else None
        rows.append(Row(machine, case, predicted, launch, measured.get(case)))
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


def predictions(machine: Machine, rows: list[Row]) -> Table:
    table = Table(title=f"{machine.name}: predicted, not measured; picoseconds for an element")
    seen = {name for row in rows for name in row.predicted.picoseconds}
    times = [name for name in ("memory", *LANES[machine.architecture]) if name in seen]
    for name in ("kernel", "backend"):
        table.add_column(name, no_wrap=True)
    launches = [row.launch for row in rows if row.launch]
    size = f"% at {launches[0].mib} MiB" if launches else "% of a launch"
    for name in (*times, "bound", "% of roof", "kB in flight", "waves", size):
        table.add_column(f"predicted\n{name}", justify="right")
    table.add_column("measured\n% of roof", justify="right")
    for row in rows:
        found, launch = row.predicted.picoseconds, row.launch
        table.add_row(
            *(row.case.name, row.case.backend),
            *(f"{found[name]:.2f}" if name in found else "" for name in times),
            *(row.predicted.bound, f"{row.predicted.percent:.1f}"),
            f"{launch.kilobytes_in_flight:.0f}" if launch else "",
            f"{launch.waves:.1f}" if launch else "",
            f"{launch.percent:.1f}" if launch else "",
            "" if row.measured is None else f"{row.measured:.1f}",
        )
    return table


@click.command(context_settings={"show_default": True})
@choice("--machine", "machines", MACHINES)
@choice("--op", "ops", [op.name for op in OPERATORS])
@choice("--gate", "gates", GATES)
@choice("--dtype", "dtypes", DTYPES)
@choice("--backend", "backends", BACKENDS)
@click.option("--bias/--no-bias", "biased", default=None, help="Only with or without; else both.")
@click.option("--budgets", "bounds", is_flag=True, help="The recorded slots; compiles nothing.")
@click.option("--mib", type=click.Choice(["64", "256"]), default="256", help="Of each tensor.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
@click.option("--json", "output", type=click.File("w"), help="Write the same to a file.")
def main(machines, ops, gates, dtypes, backends, biased, bounds, mib, results, output) -> None:
    """Predict, without a GPU, how near each kernel is to the speed of a copy."""
    cases = [
        x
        for x in CASES
        if x.op in ops and x.dtype in dtypes and x.backend in backends
        if x.gate in ("", *gates) and biased in (None, x.biased)  # some operators have no gate
    ]
    if not cases:
        raise click.UsageError("no kernel is all of that")
    chosen = [MACHINES[name] for name in machines]
    architectures = {machine.architecture for machine in chosen}
    needs = {x: allowed(x) if bounds else compiled(x, cases) for x in architectures}
    console = Console(width=None if sys.stdout.isatty() else 170)  # whole lines for a file
    console.print(assumptions(chosen))
    rows = []
    for machine in chosen:
        rows.append(rows_of(machine, cases, needs[machine.architecture], results, int(mib)))
        console.print(predictions(machine, rows[-1]))
    if output:
        found = [row.as_json() for of_machine in rows for row in of_machine]
        json.dump({"machines": list(map(asdict, chosen)), "predicted": found}, output, indent=1)


if __name__ == "__main__":
    main()
