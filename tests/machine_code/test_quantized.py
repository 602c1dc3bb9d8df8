"""The machine code of CUDA's kernels that quantise their results, and their predicted speed."""

from collections import defaultdict
from functools import cache
from itertools import product
from math import floor

import pytest

from machine_code import cuda_code
from machine_code.cases import GATES
from machine_code.launches import Launch, percent_of
from machine_code.machines import MACHINES, Prediction
from machine_code.quantized import PASSES, Cell, Path, measured, recipes_of, whole
from tests.machine_code.families import QUANTIZED, Limits, beyond

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
    """Of MX."""
    of = MACHINES[machine]
    return {
        cell: of.predict(cell.moved, path.slots, path.instructions)
        for cell, path in paths(of.architecture).items()
        if cell.scaling == "BlockWise1x32" and cell.operation != "cast"
    }


@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
def test_every_cell_is_found(architecture: str) -> None:
    expected = set()
    for name, dtype in product(PASSES, ["bfloat16", "float32"]):
        recipes = recipes_of(name)
        if not name.endswith("gradient"):
            recipes.append(("RowWise", "row", ""))
        for gate, recipe in product([""] if name == "cast" else GATES, recipes):
            expected.add(Cell(name, gate, dtype, *recipe))
    assert paths(architecture).keys() == expected


def test_memory_bound_on_h100() -> None:
    """But for bfloat16 forward with a bias, whose gate is evaluated for any float, and of two gates
    without: there the memory is used to nine tenths. A float32 GELU along a row reaches 98 %."""
    found = predictions("H100")
    bound = {cell: p for cell, p in found.items() if p.bound != "memory"}
    assert all(p.percent > 90 for p in bound.values()), bound
    of_float32 = {c.gate for c in bound if c.dtype == "float32"}
    assert {c.operation for c in bound} <= {"forward", "forward with a bias"}
    assert of_float32 <= {"normal"}


def reached(launches: dict[Cell, Path]) -> Limits:
    works = {cell: path.work("sm_90") for cell, path in launches.items()}
    h200, h100 = (
        floor(percent_of([Launch(MACHINES[m], cell, work, 256) for cell, work in works.items()]))
        for m in ("H200", "H100")
    )
    warps = min(work.resident_warps for work in works.values())
    return Limits(warps, max(work.registers for work in works.values()), h200, h100)


def test_families() -> None:
    """The warps that a processor has room for, and the predicted speed."""
    found = defaultdict(list)
    for cell, launches in whole(paths("sm_90")).items():
        is_twice = cell.scaling == "RowWise" and cell.along != "row"
        kind = "RowWise, twice" if is_twice else cell.scaling
        found[cell.operation, kind, 8 * cell.itemsize].append(reached(launches))
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
    assert min(slow.values()) > 4.25
