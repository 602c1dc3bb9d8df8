"""``python -m bench.coded``: a gate that saves its derivative in 8 or 4 bits on a CPU, compared
with the same gate saving x, forward and backward.

Prints a table in Markdown: nanoseconds per element, and the ratio to the time with x.
"""

from functools import partial
from itertools import product

import click
import torch
from torch import Tensor

from bench import timing
from bench.markdown import power_of_2, table, two_digits
from bench.operators import GATES, Call
from bench.options import Size, choice, prepare, sizes
from bench.workloads import DTYPES, Workload

ops = torch.ops.gelu_kernels
SAVED = {"x": None, "8 bits": 8, "4 bits": 4, "8 bits, dithered": 8}


def calls(gate: str, x: Tensor, bias: Tensor, dy: Tensor) -> dict[str, dict[str, Call]]:
    """By pass and what is saved."""
    seed = torch.tensor(1)
    found: dict[str, dict[str, Call]] = {"forward": {}, "backward": {}}
    for name, bits in SAVED.items():
        if bits is None:
            found["forward"][name] = partial(ops.gate_forward, x, bias, gate)
            found["backward"][name] = partial(ops.gate_backward_bias, dy, x, bias, gate)
            continue
        dithered = (seed, gate, bits, 0.0, True) if "dithered" in name else (None, gate, bits)
        found["forward"][name] = forward = partial(ops.coded_forward, x, bias, *dithered)
        _, code = forward()
        found["backward"][name] = partial(ops.coded_backward_bias, dy, code, bits)
    return found


def measure(gate: str, dtype: str, elements: int) -> list[tuple[str, ...]]:
    shape = Workload("bias_gelu", gate, dtype, elements).shape
    x, dy = (torch.randn(shape).to(DTYPES[dtype]) for _ in range(2))
    rows = []
    for label, sides in calls(gate, x, x[0].clone(), dy).items():
        found = timing.quartiles({name: [call] for name, call in sides.items()}, timing.cpu_clock)
        medians = {name: quartiles[1] for name, quartiles in found.items()}
        cells = [f"{1e3 * medians['x'] / elements:.2f}"]
        for name in list(SAVED)[1:]:
            ratio = two_digits(medians[name] / medians["x"])
            cells.append(f"{1e3 * medians[name] / elements:.2f} ({ratio})")
        rows.append((f"`{gate}`", f"{dtype} {label}", power_of_2(elements), *cells))
    return rows


@click.command(help=__doc__)
@choice("--gate", "gates", GATES, default=("normal", "normal_tanh"))
@choice("--dtype", "dtypes", DTYPES, default=("float32", "bfloat16"))
@sizes(("2^18", "2^22"))
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(
    gates: tuple[str, ...], dtypes: tuple[str, ...], sizes: tuple[Size, ...], threads: int
) -> None:
    prepare(threads)
    rows = []
    for gate, dtype, size in product(gates, dtypes, sizes):
        rows += measure(gate, dtype, size.elements(dtype))
    print(table(("gate", "pass, with a bias", "elements", *SAVED), rows))


if __name__ == "__main__":
    main(prog_name="python -m bench.coded")
