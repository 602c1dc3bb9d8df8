"""Times every operator against eager PyTorch, torch.compile and other packages.

Prints tables, and writes a CSV file with a line for each cell and a JSON file about the machine.
"""

import sys
from pathlib import Path
from time import monotonic

import click
import torch
from rich.console import Console
from tqdm import tqdm

from bench import environment, peers, report
from bench.measure import Plan, measure
from bench.operators import GATES, OPERATORS
from bench.options import (
    LADDER,
    ON_A_CPU,
    Size,
    SizeType,
    choice,
    deadline_option,
    prepare,
    sizes,
    threads_option,
)
from bench.presets import NONE, PRESETS
from bench.runs import keep
from bench.sides import COMPILERS
from bench.workloads import DTYPES, PASSES
from gelu_kernels import backend

COMPARED = ("compile", *peers.PEERS)  # by default
# torch.compile takes 5 s on a CPU for a gate of an operator in a dtype: with all gates `make bench`
# would take two minutes more.
GATES_ON_A_CPU = ("normal",)


def plan_of(
    device: str,
    gates: tuple[str, ...],
    sizes: tuple[Size, ...],
    compared: tuple[str, ...],
    **chosen,
) -> Plan:
    found, absent = peers.load(name for name in compared if name in peers.PEERS)
    for name, reason in absent.items():
        print(f"not compared: {name} ({reason})")
    if not gates:
        gates = GATES_ON_A_CPU if device == "cpu" else tuple(GATES)
        if left_out := [gate for gate in GATES if gate not in gates]:
            print(f"not measured: the gates {', '.join(left_out)}; ask with --gate")
    if not sizes:
        ladder = ON_A_CPU if device == "cpu" else LADDER
        sizes = tuple(SizeType().convert(text, None, None) for text in ladder)
        if left_out := [text for text in LADDER if text not in ladder]:
            print(f"not measured: {', '.join(left_out)}, as a CPU takes long; ask with --size")
    if device == "cpu":
        print("not measured: any GPU")
    return Plan(
        gates=gates,
        sizes=sizes,
        device=device,
        backend="gelu_kernels" if device == "cpu" else backend.for_nvidia(),
        compilers=tuple(name for name in COMPILERS if name in compared),
        peers=found,
        **chosen,
    )


def set_defaults(context: click.Context, parameter: click.Parameter, preset: str | None) -> None:
    if preset:
        context.default_map = PRESETS[preset]


@click.command(help=__doc__)
@click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    is_eager=True,
    expose_value=False,
    callback=set_defaults,
    help="Defaults of the other options, in bench/presets.py.",
)
@choice("--op", "ops", OPERATORS, help="Operators.")
@choice("--pass", "passes", PASSES, help="Passes; both is a training step's, by autograd.")
@choice(
    "--gate",
    "gates",
    GATES,
    default=(),
    help=f"Gates.  [default: {' '.join(GATES)}; on a CPU {' '.join(GATES_ON_A_CPU)}]",
)
@choice("--dtype", "dtypes", DTYPES, default=("float32", "bfloat16"), help="Dtypes.")
@choice(
    "--peer",
    "compared",
    (*COMPILERS, *peers.PEERS, NONE),
    default=COMPARED,
    help="Compared with, besides eager PyTorch.",
)
@sizes(
    help="Elements of the result, or its bytes."
    f"  [default: {' '.join(LADDER)}; on a CPU {' '.join(ON_A_CPU)}]",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="[default: a GPU if there is one]"
)
@threads_option
@deadline_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build", "bench"),
    show_default=True,
    help="Folder for the two files.",
)
def main(device: str | None, threads: int | None, deadline: float, output: Path, **chosen) -> None:
    end = monotonic() + deadline
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch sees no GPU here")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    prepare(threads)
    plan = plan_of(device, deadline=end, **chosen)
    run = {
        "machine": environment.describe(device),
        "not timed": (not_timed := []),
        "results": (results := []),
    }
    with tqdm(total=len(plan)) as progress:
        path = keep(run, output)
        for record in measure(plan, progress):
            (results if "side" in record else not_timed).append(record)
            keep(run, output)  # a run that is cut short leaves what it has
    if device == "cuda":
        run["after"] = environment.nvidia_smi("clocks.sm", "clocks.mem", "temperature.gpu")
        keep(run, output)
    report.show(
        results, not_timed, plan.backend, Console(width=None if sys.stdout.isatty() else 200)
    )
    print(f"{run['machine']['device']}: {path.with_suffix('')}.csv and .json")
    if any(record.get("by") == plan.backend for record in not_timed):
        sys.exit("some of our results were wrong, and were not timed")


if __name__ == "__main__":
    main(prog_name="python -m bench")
