"""Compare results on a device with those on the CPU, bit by bit.

``python -m tests.bits --device cuda`` counts the results that differ, for every operator and dtype.
"""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import click
import torch
from torch import Tensor

from gelu_kernels.operators.types import Extent
from tests.calls import CORE_CALLS, DTYPES, Call, normal
from tests.layouts import LAYOUTS, arrangements
from tests.oracles import oracle

SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def patterns(t: Tensor) -> Tensor:
    return t.resolve_neg().contiguous().view(SAME_SIZE[t.itemsize])


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(patterns(a), patterns(b))


def differing(a: Tensor, b: Tensor) -> int:
    """How many elements differ in their bits. All NaN count as the same."""
    assert a.shape == b.shape and a.dtype == b.dtype
    return int(((patterns(a) != patterns(b)) & ~(a.isnan() & b.isnan())).sum())


def any_numbers(dtype: torch.dtype) -> Tensor:
    """A matrix of bit patterns: in 16 bits all of them, else 65,536 random ones."""
    if dtype.itemsize == 2:
        x = oracle.every_16_bit_input(dtype)
    else:
        integers = torch.empty(2**13 * dtype.itemsize, dtype=torch.int64)
        x = integers.random_(-(2**63), None).view(dtype)
    return x.view(-1, 512)


def of_any_numbers(call: Call, dtype: torch.dtype) -> list[Tensor]:
    """The leading tensor has any bit patterns; the others have ordinary numbers."""
    numbers = any_numbers(dtype)[: None if dtype.itemsize == 2 else 32]
    tensors = call.inputs(numbers.shape, lambda *s: (3 * normal(*s)).to(dtype))
    leading = tensors[list(call.tensors).index(call.leading)]
    leading[..., : numbers.size(-1)] = numbers
    return tensors


def inputs(call: Call, dtype: torch.dtype) -> Iterator[list[Tensor]]:
    yield of_any_numbers(call, dtype)
    # More than one block of rows, and tiles of columns with a ragged end.
    yield call.inputs((1001, 519), lambda *s: (3 * normal(*s)).to(dtype))


def arranged_inputs(call: Call, dtype: torch.dtype) -> Iterator[list[Tensor]]:
    """For each kind of kernel: a tail alone, rows of vectors, rows of both, and where columns are
    summed, many blocks of rows."""
    layouts = ["contiguous", "second half", "misaligned by 1", "transposed", "one row"]
    shapes = [(1, 7), (3, 264), (40, 513)]
    if Extent.COLUMNS in call.op.outputs.values():
        shapes.append((40_000, 5))
    for shape, layout in product(shapes, layouts):
        yield next(
            arrangements(call, LAYOUTS[layout], shape, lambda *s: (3 * normal(*s)).to(dtype))
        )


def large_tensors(call: Call, dtype: torch.dtype, left: int = 3) -> list[Tensor]:
    """Beyond kSmallBytes of csrc/cuda/tuning.h a warp takes two or four rows; `left` rows are left
    for the last warp. Where the tensors are one long row, it ends with less than a vector."""
    n = 2**21 // dtype.itemsize
    shape = (n + left * 512 // dtype.itemsize + 1,)
    extents = [*call.tensors.values(), *call.op.outputs.values()]
    if {Extent.COLUMNS, Extent.ROWS} & {*extents} or call.op.halves:
        shape = (4 * (n // 1032 // 4 + 1) + left, 1032)
    return call.inputs(shape, lambda *s: (3 * normal(*s)).to(dtype))


def differing_from_cpu(index: int, gate: str, dtype: torch.dtype, device: str) -> int:
    """How many results of a core call differ between the device and the CPU."""
    from tests.devices import kernels_for

    torch.manual_seed(0)
    torch.set_num_threads(1)
    call, count = CORE_CALLS[index], 0
    with kernels_for(device) as place:
        for tensors in inputs(call, dtype):
            here = call(*tensors, gate=gate)
            there = call(*(t.to(place) for t in tensors), gate=gate)
            count += sum(differing(a, b.cpu()) for a, b in zip(here, there, strict=True))
    return count


def is_later(call: Call, first: tuple[str, ...]) -> bool:
    return not {call.op.family, call.op.name} & {*first}


@click.command(help=__doc__)
@click.option("--device", default="cuda", show_default=True, help="A name of tests/devices.py.")
@click.option("--dtype", "dtypes", multiple=True, help="[default: all]")
@click.option("--first", multiple=True, help="Families and operators that are compared first.")
@click.option(
    "--json", "output", type=click.Path(path_type=Path), help="Write the counts to this file."
)
def main(device: str, dtypes: tuple[str, ...], first: tuple[str, ...], output: Path | None) -> None:
    chosen = [getattr(torch, name) for name in dtypes] or DTYPES
    order = sorted(enumerate(CORE_CALLS), key=lambda x: is_later(x[1], first))
    cells = [
        (index, gate, dtype, device)
        for (index, call), dtype in product(order, chosen)
        for gate in call.gates
    ]
    different, compared = {}, 0
    # Triton compiles a kernel for a second.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        counts = pool.map(differing_from_cpu, *zip(*cells, strict=True))
        for (index, gate, dtype, _), count in zip(cells, counts, strict=True):
            compared += 1
            if count:
                different[f"{CORE_CALLS[index]}, {gate}, {dtype}"] = count
            if output:
                found = {"compared": compared, "of": len(cells), "other bits": different}
                output.write_text(json.dumps(found, indent=1))
    print(f"{compared} operators, gates and dtypes; other bits than on the CPU: {different}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
