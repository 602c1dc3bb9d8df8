"""The machine code of CUDA's kernels that quantise their results, and their predicted speed."""

from collections import defaultdict
from functools import cache
from itertools import product

import pytest

from machine_code import cuda_code
from machine_code.cases import GATES
from machine_code.machines import MACHINES, Prediction
from machine_code.quantized import ALONG, FLOATS, PASSES, Cell, Path, measured
from tests.machine_code.families import QUANTIZED, beyond, reached

pytestmark = pytest.mark.slow  # the disassembler takes 14 s

B200_TB_S = 5.5  # to be reached, of a copy's 6.7


@cache
def paths(architecture: str) -> dict[Cell, Path]:
    if missing := cuda_code.missing_tools():
        pytest.skip(f"needs {', '.join(missing)}")
    try:
        return measured(architecture)
    except LookupError as error:
        pytest.skip(str(error))


@cache
def predictions(machine: str) -> dict[Cell, Prediction]:
    of = MACHINES[machine]
    return {
        cell: of.predict(cell.moved, path.slots, path.instructions)
        for cell, path in paths(of.architecture).items()
        if cell.recipe in ALONG
    }


@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
def test_every_cell_is_found(architecture: str) -> None:
    every = product(PASSES, GATES, ["bfloat16", "float32"], [*ALONG, *FLOATS])
    forward = "forward", "forward with a bias", "GLU forward"
    cells = {cell for x in every if (cell := Cell(*x)).recipe in ALONG or x[0] in forward}
    assert paths(architecture).keys() == cells


def test_memory_bound_on_h100() -> None:
    """But for bfloat16 forward with a bias, whose gate is evaluated for any float, and of two gates
    without: there the memory is used to nine tenths."""
    found = predictions("H100")
    bound = {cell: p for cell, p in found.items() if p.bound != "memory"}
    assert all(p.percent > 90 for p in bound.values()), bound
    assert {(c.operation, c.dtype) for c in bound} <= {
        ("forward", "bfloat16"),
        ("forward with a bias", "bfloat16"),
    }


def test_families() -> None:
    """The warps that a processor has room for, and the predicted speed."""
    found = defaultdict(list)
    for cell, path in paths("sm_90").items():
        kind = "MX" if cell.recipe in ALONG else cell.recipe
        family = cell.operation, kind, 8 * cell.itemsize
        found[family].append(reached(cell, path.work("sm_90")))
    assert found.keys() == QUANTIZED.keys()
    assert not beyond(found, QUANTIZED)


def test_all_loads_come_before_the_first_use() -> None:
    """A lane waits for memory once in each tile or part of a row."""
    assert not [cell for cell, path in paths("sm_90").items() if path.waits != 1]


def test_speed_on_a_b200() -> None:
    """Only forward passes of a gate alone are slower: some of these are bound by arithmetic."""
    copied = MACHINES["B200"].copied
    reached = {cell: copied * p.percent / 100 for cell, p in predictions("B200").items()}
    slow = {cell: x for cell, x in reached.items() if x < B200_TB_S}
    assert {cell.operation for cell in slow} <= {"forward", "forward with a bias"}
    assert min(slow.values()) > 4.3
