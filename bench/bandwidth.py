"""``python -m bench.bandwidth``: on a GPU, each pass beside PyTorch's and beside a copy of memory.

A pass moves bytes, and a plain copy shows how fast this GPU can. Inputs and results rotate through
more memory than any cache holds. Everything is checked against float64 before it is timed.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import cases
from bench.events import GRAPHED, Call, as_graph, microseconds
from gelu_kernels import functional
from gelu_kernels.triton_kernels import operators

ops, aten = torch.ops.gelu_kernels, torch.ops.aten

GATES = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SIZES = [256, 64, 1024]  # MiB of x
COLUMNS = 4096
ROTATED = 2**29  # bytes of x that are passed before one comes again; no L2 has a quarter of that
LADDER = [2**n for n in range(4, 21, 2)]  # elements


@dataclass
class Inputs:
    x: Tensor
    bias: Tensor
    dy: Tensor

    def of(self, biased: bool) -> tuple[Tensor, ...]:
        return (self.x, self.bias) if biased else (self.x,)


def make_inputs(rows: int, columns: int, dtype: torch.dtype, device: str) -> Inputs:
    x, dy = (torch.randn(rows, columns, dtype=dtype, device=device) for _ in range(2))
    return Inputs(x, torch.randn(columns, dtype=dtype, device=device), dy)


# The sides. A backward pass is called as an operator: autograd takes its time on the CPU, which is
# no matter of bandwidth.


def our_forward(inputs: Inputs, biased: bool, approximate: str) -> Call:
    f = functional.bias_gelu if biased else functional.gelu
    return partial(f, *inputs.of(biased), approximate)


def backward_of(kernels: object, inputs: Inputs, biased: bool, approximate: str) -> Call:
    """`kernels` has the core operators by their names."""
    gate = GATES[approximate]
    if biased:
        return partial(kernels.gate_backward_bias, inputs.dy, inputs.x, inputs.bias, gate)
    return partial(kernels.gate_backward, inputs.dy, inputs.x, None, gate)


def triton_forward(inputs: Inputs, biased: bool, approximate: str) -> Call:
    bias = inputs.bias if biased else None
    return partial(operators.gate_forward, inputs.x, bias, GATES[approximate])


def their_forward(inputs: Inputs, biased: bool, approximate: str) -> Call:
    f = cases.quick_gelu if approximate == "sigmoid" else partial(F.gelu, approximate=approximate)
    if biased:
        return lambda: f(inputs.x + inputs.bias)
    return partial(f, inputs.x)


def their_backward(inputs: Inputs, biased: bool, approximate: str) -> Call:
    if approximate == "sigmoid":  # no operator of its own
        f = cases.eager(approximate)
        return cases.backward(
            lambda *t: f(t[0] + t[1] if biased else t[0]), inputs.of(biased), inputs.dy
        )
    saved = inputs.x + inputs.bias if biased else inputs.x

    def call() -> object:
        dx = aten.gelu_backward(inputs.dy, saved, approximate=approximate)
        return (dx, dx.sum(0)) if biased else dx

    return call


# "ours" is the backend that serves this GPU; the Triton kernels are called directly.
PASSES = {
    "forward": {"ours": our_forward, "triton": triton_forward, "torch": their_forward},
    "backward": {
        "ours": partial(backward_of, ops),
        "triton": partial(backward_of, operators),
        "torch": their_backward,
    },
}


def copy(inputs: Inputs) -> Call:
    return partial(torch.empty_like(inputs.x).copy_, inputs.x)


def bytes_moved(inputs: Inputs, label: str, biased: bool) -> int:
    """Each input read once, each result written once."""
    backward = label == "backward"
    return (2 + backward) * inputs.x.nbytes + biased * (1 + backward) * inputs.bias.nbytes


SIDES = ("ours", "triton", "torch", "copy")

# Checking


def check(inputs: Inputs, biased: bool, approximate: str) -> None:
    """Every side's value and gradients, all of them, in pieces that leave room for float64."""
    results = []
    for side in PASSES["forward"]:
        y = PASSES["forward"][side](inputs, biased, approximate)()
        gradients = PASSES["backward"][side](inputs, biased, approximate)()
        results.append([y, *(gradients if isinstance(gradients, tuple) else (gradients,))])
    dbias = torch.zeros_like(inputs.bias, dtype=torch.float64)
    for start in range(0, len(inputs.x), 2048):
        rows = slice(start, start + 2048)
        piece = Inputs(inputs.x[rows], inputs.bias, inputs.dy[rows])
        exact = cases.exact(piece.of(biased), piece.dy, approximate)
        for y, dx, *_ in results:
            cases.assert_close(y[rows], exact[0])
            cases.assert_close(dx[rows], exact[1])
        if biased:
            dbias += exact[2]
    if biased:
        for *_, sums in results:
            cases.assert_close(sums, dbias)


def failed_check(inputs: Inputs, biased: bool, approximate: str) -> dict | None:
    """In place of the cells that are not timed then."""
    try:
        check(inputs, biased, approximate)
    except AssertionError as error:
        name = f"{approximate}, {inputs.x.dtype}, {tuple(inputs.x.shape)}"
        return {"wrong": f"{'bias_gelu' if biased else 'gelu'}, {name}: {error}"}
    return None


# The two tables. A cell is a dictionary, for JSON.


def cell(inputs: list[Inputs], label: str, biased: bool, approximate: str, graph: bool) -> dict:
    sides = {
        side: [make(one, biased, approximate) for one in inputs]
        for side, make in PASSES[label].items()
    }
    sides["copy"] = [copy(one) for one in inputs]
    if graph:
        sides = {side: as_graph(calls) for side, calls in sides.items()}
    quartiles = microseconds(sides, GRAPHED if graph else 1)
    us = {side: times[1] for side, times in quartiles.items()}
    x = inputs[0].x
    moved = bytes_moved(inputs[0], label, biased)
    rates = {side: moved / us[side] / 1000 for side in ("ours", "triton")}
    copied = 2 * x.nbytes / us["copy"] / 1000
    return {
        "op": ("bias_gelu " if biased else "gelu ") + label,
        "approximate": approximate,
        "dtype": str(x.dtype).removeprefix("torch."),
        "elements": x.numel(),
        "bytes": moved,
        "us": {side: round(time, 3) for side, time in us.items()},
        "quartiles": {side: [round(t, 3) for t in times] for side, times in quartiles.items()},
        "GB/s": {side: round(rate, 1) for side, rate in rates.items()},
        "% of copy": {side: round(100 * rate / copied, 1) for side, rate in rates.items()},
        "torch/ours": round(us["torch"] / us["ours"], 3),
    }


def large(device: str, sizes: list[int]) -> Iterator[dict]:
    for size, dtype in product(sizes, DTYPES):
        torch.cuda.empty_cache()
        nbytes = size * 2**20
        if torch.cuda.mem_get_info()[0] < 24 * nbytes:
            yield {"skipped": f"{size} MiB: needs {24 * size} MiB of free GPU memory"}
            continue
        sets = max(2, ROTATED // nbytes)
        rows = nbytes // dtype.itemsize // COLUMNS
        inputs = [make_inputs(rows, COLUMNS, dtype, device) for _ in range(sets)]
        for biased, approximate in product((False, True), GATES):
            if wrong := failed_check(inputs[0], biased, approximate):
                yield wrong
                continue
            for label in PASSES:
                yield cell(inputs, label, biased, approximate, graph=False)
        del inputs


def small(device: str) -> Iterator[dict]:
    """In cache, as a small tensor is; what a call takes, and what the GPU takes of it."""
    for elements, biased in product(LADDER, (False, True)):
        columns = min(elements, 1024)
        inputs = [make_inputs(elements // columns, columns, torch.bfloat16, device)]
        if wrong := failed_check(inputs[0], biased, "none"):
            yield wrong
            continue
        for label, graph in product(PASSES, (False, True)):
            found = cell(inputs, label, biased, "none", graph)
            yield {"time of": "the GPU" if graph else "a call"} | found


def line(found: dict) -> str:
    for problem in ("skipped", "wrong"):
        if problem in found:
            return f"{problem}: {found[problem]}"
    us = "".join(f"{found['us'][side]:10.2f}" for side in SIDES)
    title = f"{found['op']:18} {found['approximate']:8} {found['dtype']:9} {found['elements']:10}"
    percent = "".join(f"{found['% of copy'][side]:8.1f}" for side in ("ours", "triton"))
    rates = f"{found['GB/s']['ours']:8.0f}{percent} {found['torch/ours']:6.2f}"
    return f"{title}{us} {rates}  {found.get('time of', '')}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="a file to write the same to")
    parser.add_argument("--mebibytes", type=int, nargs="*", default=SIZES, help="sizes of x")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tables: dict[str, list[dict]] = {"large": [], "small": []}
    print(
        f"{'':46}{'us: ours':>10}{'triton':>10}{'torch':>10}{'copy':>10}"
        f" {'GB/s':>8}{'%copy':>8}{'triton':>8} {'x':>6}",
        flush=True,
    )
    for name, cells in (("large", large("cuda", arguments.mebibytes)), ("small", small("cuda"))):
        for found in cells:
            tables[name].append(found)
            print(line(found), flush=True)
            if arguments.json:  # after every cell: a run that is cut short leaves what it has
                arguments.json.write_text(json.dumps(tables, indent=1))
    if any("wrong" in found for cells in tables.values() for found in cells):
        sys.exit("some results were wrong, and their passes were not timed")


if __name__ == "__main__":
    main()
