"""Times compiled functions with the gates as operators and as a part of Inductor's loops.

Prints microseconds, also of compiled F.gelu. They are lower quartiles, which other processes on the
machine disturb less than medians.
"""

import os
from collections.abc import Callable
from functools import partial

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bench import environment
from bench.operators import EAGER_GATES, GATES, Call
from bench.options import Size, choice, prepare, sizes
from bench.timing import cpu_clock, cuda_clock, quartiles
from bench.workloads import DTYPES, Workload
from gelu_kernels import functional
from gelu_kernels.compile import disable_fusion, enable_fusion

Gelu = Callable[[Tensor], Tensor]

# The code around the gate.
FUNCTIONS: dict[str, Callable[[Gelu, Tensor, Tensor], Tensor]] = {
    "gelu(x)": lambda gelu, x, r: gelu(x),
    "gelu(1.5 x)": lambda gelu, x, r: gelu(x * 1.5),
    "gelu(1.5 x) / 2 + r": lambda gelu, x, r: gelu(x * 1.5) * 0.5 + r,
}
SIDES = ("F.gelu", "operators", "fused")
PASSES = ("forward", "both")


def compiled(function: str, side: str, gate: str) -> Callable[[Tensor, Tensor], Tensor]:
    ours = partial(functional.gelu, approximate=GATES[gate])
    gelu = EAGER_GATES[gate] if side == "F.gelu" else ours

    def forward(x: Tensor, r: Tensor) -> Tensor:
        return FUNCTIONS[function](gelu, x, r)

    # A name of its own, as torch.compile caches by the function's code object.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_{SIDES.index(side)}")
    return torch.compile(forward, fullgraph=True, dynamic=True)


def call_of(f: Callable[..., Tensor], label: str, x: Tensor, r: Tensor) -> Call:
    if label == "forward":
        return lambda: f(x, r)
    leaf = x.detach().requires_grad_()
    return lambda: torch.autograd.grad(f(leaf, r), leaf, r)


def measure(
    function: str, gate: str, dtype: torch.dtype, shapes: list[tuple[int, int]], device: str
) -> list[tuple[str, ...]]:
    """Rows of a table: the pass, the elements, and a time for each side."""
    torch.compiler.reset()
    clock = cuda_clock if device == "cuda" else cpu_clock
    functions = {side: compiled(function, side, gate) for side in SIDES}
    rows = []
    for shape in shapes:
        x, r = torch.randn(2, *shape, device=device).to(dtype)
        for label in PASSES:
            calls = {side: call_of(f, label, x, r) for side, f in functions.items()}
            for side, call in calls.items():  # the first one compiles
                (enable_fusion if side == "fused" else disable_fusion)()
                call()
            found = quartiles({side: [call] for side, call in calls.items()}, clock)
            rows.append((label, str(x.numel()), *(f"{found[side][0]:.1f}" for side in SIDES)))
    disable_fusion()
    return rows


@click.command(help=__doc__)
@click.option("--gate", type=click.Choice(tuple(EAGER_GATES)), default="normal")
@choice("--dtype", "dtypes", DTYPES, default=("float32", "bfloat16"))
@sizes(("2^18", "2^22"))
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(gate: str, dtypes: tuple[str, ...], sizes: tuple[Size, ...], threads: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prepare(threads)
    table = Table("dtype", "function", "pass", "elements", *SIDES)
    for dtype in dtypes:
        shapes = [Workload("gelu", gate, dtype, size.elements(dtype)).shape for size in sizes]
        for function in FUNCTIONS:
            for row in measure(function, gate, DTYPES[dtype], shapes, device):
                table.add_row(dtype, function, *row)
    console = Console(width=100)
    console.print(environment.describe(device), "load average:", os.getloadavg())
    console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m bench.fusion")
