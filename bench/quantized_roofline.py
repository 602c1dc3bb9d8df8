"""``python -m bench.quantized_roofline``: how near CUDA's kernels that quantise their results come
to the speed of a copy, predicted from their machine code as in ``python -m bench.roofline``, and
the bytes that they move, compared with a chain of a gate and casts. RowWise along columns takes two
launches: its bytes are those of both, and its slots are added."""

import sys

import click
from rich.console import Console
from rich.table import Table

from bench.options import choice
from machine_code import cuda_code
from machine_code.cases import GATES
from machine_code.launches import Launch, percent_of
from machine_code.machines import MACHINES
from machine_code.quantized import PASSES, Cell, measured, whole

SIZES = (64, 256)  # MiB of a tensor before it is quantised; the TB/s are of the last


def chained(cell: Cell) -> float:
    """Bytes of the pass alone, which writes its results, and of a cast for each direction, which
    reads them. Before a cast by the largest magnitude of a row, a column, or of all, they are read
    once more."""
    _, read, results = PASSES[cell.operation]
    directions = 2 if cell.along == "both" else 1
    reads = directions * (2 if cell.scaling in ("RowWise", "TensorWise") else 1)
    return (read + results + reads * results) * cell.itemsize + cell.written


@click.command(help=__doc__, context_settings={"show_default": True})
@choice("--machine", "machines", ("H100", "H200", "B200"))
@choice("--gate", "gates", GATES)
@choice("--dtype", "dtypes", ("bfloat16", "float32"))
def main(machines, gates, dtypes) -> None:
    if missing := cuda_code.missing_tools():
        raise click.ClickException(f"needs {', '.join(missing)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    for name in machines:
        machine = MACHINES[name]
        table = Table(title=f"{name}: predicted, not measured")
        for column in ("pass", "gate", "dtype", "scaling", "along"):
            table.add_column(column, no_wrap=True)
        sizes = [f"% at {mib} MiB" for mib in SIZES]
        columns = ("bytes", "of a chain's", "slots", "bound", "registers", "warps", *sizes, "TB/s")
        for column in columns:
            table.add_column(column, justify="right")
        calls = whole(measured(machine.architecture))
        order = sorted(calls, key=lambda c: (list(PASSES).index(c.operation), c.gate))
        for cell in order:
            if cell.gate not in (*gates, "") or cell.dtype not in dtypes:
                continue
            works = {c: path.work(machine.architecture) for c, path in calls[cell].items()}
            percents = [
                percent_of([Launch(machine, c, work, mib) for c, work in works.items()])
                for mib in SIZES
            ]
            moved = sum(c.moved for c in works)
            bounds = {
                machine.predict(c.moved, path.slots, path.instructions).bound
                for c, path in calls[cell].items()
            }
            table.add_row(
                *cell[:-1],
                f"{moved:.2f}",
                f"1/{chained(cell) / moved:.1f}",
                f"{sum(path.slots for path in calls[cell].values()):.1f}",
                "/".join(sorted(bounds)),
                f"{max(work.registers for work in works.values())}",
                f"{min(work.resident_warps for work in works.values())}",
                *(f"{percent:.0f}" for percent in percents),
                f"{machine.copied * percents[-1] / 100:.2f}",
            )
        console.print(table)


if __name__ == "__main__":
    main()
