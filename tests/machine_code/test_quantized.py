"""The machine code of CUDA's kernels that quantise in MX blocks: predicted, memory binds them."""

from functools import cache
from itertools import product

import pytest

from machine_code import cuda_code
from machine_code.cases import GATES
from machine_code.machines import MACHINES, Prediction
from machine_code.quantized import ALONG, PASSES, Cell, measured

pytestmark = pytest.mark.slow  # the disassembler takes 14 s

B200_TB_S = 5.5  # to be reached, of a copy's 6.7


@cache
def predictions(machine: str) -> dict[Cell, Prediction]:
    if missing := cuda_code.missing_tools():
        pytest.skip(f"needs {', '.join(missing)}")
    of = MACHINES[machine]
    return {
        cell: of.predict(cell.moved, path.slots, path.instructions)
        for cell, path in measured(of.architecture).items()
    }


@pytest.mark.parametrize("machine", ["H100", "B200"])
def test_every_cell_is_found(machine: str) -> None:
    every = product(PASSES, GATES, ["bfloat16", "float32"], ALONG)
    assert predictions(machine).keys() == {Cell(*cell) for cell in every}


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


def test_speed_on_a_b200() -> None:
    """Only forward passes of a gate alone are slower: some of these are bound by arithmetic."""
    copied = MACHINES["B200"].copied
    reached = {cell: copied * p.percent / 100 for cell, p in predictions("B200").items()}
    slow = {cell: x for cell, x in reached.items() if x < B200_TB_S}
    assert {cell.operation for cell in slow} <= {"forward", "forward with a bias"}
    assert min(slow.values()) > 4.3
