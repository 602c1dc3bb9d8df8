"""``python -m tests.ptx_on_cpu``: compares nvcc's and Triton's kernels with the CPU's, bit by bit.

Prints the number of results of every operator, gate and dtype, including every 16-bit input. The
exit status is 1 if any has other bits.
"""

import sys
from collections.abc import Iterator
from time import perf_counter

import click
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from tests import bits, ptx_on_cpu
from tests.calls import CORE_CALLS, DTYPES, Call
from tests.devices import PTX, kernels_for


def cell(compared: int, different: int) -> str:
    return f"{compared:,}" if different == 0 else f"[red]{different:,} of {compared:,} differ"


def inputs(call: Call, gate: str, dtype: torch.dtype, backend: str) -> Iterator[list[Tensor]]:
    yield from bits.inputs(call, dtype)
    # Each size and layout is another kernel of Triton's to compile; a gate is a small part of it.
    if backend.startswith("cuda_ptx") or gate == call.gates[0]:
        yield from bits.arranged_inputs(call, dtype)
        yield bits.large_tensors(call, dtype)


def compare(call: Call, gate: str, dtype: torch.dtype, backend: str) -> tuple[int, int]:
    """The number of results, and how many of them have other bits."""
    torch.manual_seed(0)
    compared = different = 0
    for tensors in inputs(call, gate, dtype, backend):
        expected = call(*tensors, gate=gate)
        with kernels_for(backend):
            results = call(*tensors, gate=gate)
        compared += sum(t.numel() for t in expected)
        different += sum(bits.differing(a, b) for a, b in zip(results, expected, strict=True))
    return compared, different


def table(backend: str, console: Console) -> int:
    """Prints the table and returns the number of results that differ."""
    begin = perf_counter()
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    printed = Table("operator", "gate", *names, title=f"{backend}: results with the CPU's bits")
    rows = [(call, gate) for call in CORE_CALLS for gate in call.gates]
    compared = different = 0
    for call, gate in track(rows, backend, console=console, transient=True):
        counts = [compare(call, gate, dtype, backend) for dtype in DTYPES]
        printed.add_row(str(call), gate, *(cell(*count) for count in counts))
        compared += sum(count[0] for count in counts)
        different += sum(count[1] for count in counts)
    console.print(printed)
    seconds = perf_counter() - begin
    console.print(f"{compared:,} results, {different:,} with other bits, in {seconds:.0f} s")
    return different


def executed(console: Console) -> None:
    """Prints how many statements of the kernels were executed, and the source of the others."""
    kernels = ptx_on_cpu.kernels_that_ran()
    total = ran = 0
    lines: dict[str, int] = {}
    for kernel in kernels:
        for statement, count in zip(kernel.entry.statements, kernel.executed(), strict=True):
            total += 1
            if count > 0:
                ran += 1
            else:
                place = kernel.source(statement)
                lines[place] = lines.get(place, 0) + 1
    console.print(f"{len(kernels)} kernels, {ran:,} of {total:,} statements executed")
    for place, count in sorted(lines.items(), key=lambda item: -item[1]):
        console.print(f"{count:8,} not executed: {place}", highlight=False, soft_wrap=True)


@click.command(help=__doc__)
@click.option("--backend", "backends", multiple=True, help='Such as "cuda_ptx sm_100".')
@click.option("--unexecuted", is_flag=True, help="The lines whose instructions were never reached.")
def main(backends: tuple[str, ...], unexecuted: bool) -> None:
    console = Console(width=120)
    different = sum(table(backend, console) for backend in backends or PTX)
    if unexecuted:
        executed(console)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
