"""Results on a device beside those on the CPU, bit by bit.

``python tests/bits.py --device cuda`` counts, for every operator and dtype, the other bits.
"""

import json
import sys
from itertools import product
from pathlib import Path

import click
import oracle
import torch
from conftest import kernels_for
from every_operator import every_operator
from torch import Tensor

SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def patterns(t: Tensor) -> Tensor:
    return t.contiguous().view(SAME_SIZE[t.itemsize])


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(patterns(a), patterns(b))


def differing(a: Tensor, b: Tensor) -> int:
    """How many elements have other bits. A NaN is a NaN, whatever else is in it."""
    assert a.shape == b.shape and a.dtype == b.dtype
    return int(((patterns(a) != patterns(b)) & ~(a.isnan() & b.isnan())).sum())


def any_numbers(dtype: torch.dtype) -> Tensor:
    """As a matrix: in 16 bits all there are, else 65,536 random patterns of bits."""
    if dtype.itemsize == 2:
        x = oracle.every_16_bit_input(dtype)
    else:
        integers = torch.empty(2**13 * dtype.itemsize, dtype=torch.int64)
        x = integers.random_(-(2**63), None).view(dtype)
    return x.view(-1, 512)


def differing_from_cpu(gate: str, dtype: torch.dtype, device: str) -> dict[str, int]:
    """For each operator, how many of its results on the device have other bits than on the CPU."""
    # More than one block of rows, and tiles of columns with a ragged end.
    ordinary = (3 * torch.randn(1001, 519, dtype=torch.float64)).to(dtype)
    counts = {}
    for x in (any_numbers(dtype), ordinary):
        bias, dy, ddx = (
            torch.randn(s, dtype=torch.float64).to(dtype) for s in (x[0].shape, x.shape, x.shape)
        )
        arguments = ddx, dy, x, bias
        here = every_operator(*arguments, gate)
        there = every_operator(*(t.to(device) for t in arguments), gate)
        for (name, ours), (_, theirs) in zip(here, there, strict=True):
            different = sum(differing(a, b.cpu()) for a, b in zip(ours, theirs, strict=True))
            counts[name] = counts.get(name, 0) + different
    return counts


@click.command(help=__doc__)
@click.option("--device", default="cuda", show_default=True, help="As the tests name it.")
@click.option("--dtype", "dtypes", multiple=True, help="[default: all]")
@click.option("--json", "output", type=click.Path(path_type=Path), help="The counts, as a file.")
def main(device: str, dtypes: tuple[str, ...], output: Path | None) -> None:
    found = {}
    chosen = [getattr(torch, name) for name in dtypes] or oracle.FORMATS
    for gate, dtype in product(oracle.GATES, chosen):
        torch.manual_seed(0)
        with kernels_for(device) as place:
            for name, count in differing_from_cpu(gate, dtype, place).items():
                found[f"{name}, {gate}, {dtype}"] = count
    different = {name: count for name, count in found.items() if count}
    print(f"{len(found)} operators, gates and dtypes; other bits than on the CPU: {different}")
    if output:
        output.write_text(json.dumps({"compared": len(found), "other bits": different}, indent=1))
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
