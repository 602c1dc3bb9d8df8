"""What the kernels for sm_90 may take of a processor, and how fast they must be, predicted."""

from collections.abc import Mapping
from math import floor
from typing import NamedTuple, TypeVar

from machine_code.cases import Case
from machine_code.launches import Launch
from machine_code.machines import MACHINES
from machine_code.work import Work

Family = TypeVar("Family")


class Limits(NamedTuple):
    """Over gates and dtypes."""

    warps: int  # that a processor has room for, at the least
    registers: int  # of a thread, at the most
    # The least predicted speed at 256 MiB, % of a copy's.
    h200: int
    h100: int


# By backend, core operator, whether it has vectors along the columns, and bits of a number.
FAMILIES: dict[str, dict[tuple[str, bool, int], Limits]] = {
    "cuda": {
        ("gate_forward", False, 32): Limits(48, 40, 98, 99),
        ("gate_forward", True, 32): Limits(48, 40, 98, 99),
        ("gate_forward", False, 16): Limits(48, 40, 92, 98),
        ("gate_forward", True, 16): Limits(48, 40, 93, 98),
        ("gate_backward", False, 32): Limits(48, 40, 102, 102),
        ("gate_backward", True, 32): Limits(48, 40, 102, 102),
        ("gate_backward", False, 16): Limits(48, 40, 101, 102),
        ("gate_backward", True, 16): Limits(48, 40, 101, 102),
        ("gate_backward_bias", True, 32): Limits(32, 64, 101, 102),
        ("gate_backward_bias", True, 16): Limits(24, 77, 100, 101),
        ("gate_double_backward", False, 32): Limits(28, 67, 105, 104),
        ("gate_double_backward", True, 32): Limits(32, 60, 105, 104),
        ("gate_double_backward", False, 16): Limits(28, 72, 94, 103),
        ("gate_double_backward", True, 16): Limits(28, 72, 93, 102),
        ("glu_forward", False, 32): Limits(48, 40, 102, 102),
        ("glu_forward", True, 32): Limits(48, 40, 102, 102),
        ("glu_forward", False, 16): Limits(48, 40, 102, 102),
        ("glu_forward", True, 16): Limits(48, 40, 100, 102),
        ("glu_backward", False, 32): Limits(28, 72, 102, 102),
        ("glu_backward", False, 16): Limits(28, 72, 100, 102),
        ("glu_backward_weight", True, 32): Limits(24, 80, 101, 102),
        ("glu_backward_weight", True, 16): Limits(24, 80, 97, 101),
        ("soi_forward", False, 32): Limits(36, 51, 96, 96),
        ("soi_forward", True, 32): Limits(32, 60, 96, 96),
        ("soi_forward", False, 16): Limits(28, 72, 94, 95),
        ("soi_forward", True, 16): Limits(24, 80, 92, 95),
        ("soi_cdf_forward", True, 32): Limits(32, 61, 95, 96),
        ("soi_cdf_forward", True, 16): Limits(20, 93, 88, 94),
        ("soi_backward", False, 32): Limits(48, 40, 98, 99),
        ("soi_backward", False, 16): Limits(48, 40, 99, 99),
        ("soi_backward_bias", True, 32): Limits(32, 58, 95, 95),
        ("soi_backward_bias", True, 16): Limits(24, 68, 94, 95),
        ("cdf_gate_forward", True, 32): Limits(32, 64, 85, 96),
        ("cdf_gate_forward", True, 16): Limits(36, 56, 84, 96),
        ("cdf_gate_backward", True, 32): Limits(24, 80, 92, 99),
        ("cdf_gate_backward", True, 16): Limits(16, 117, 92, 99),
        ("coded_forward", False, 32): Limits(32, 64, 92, 97),
        ("coded_forward", True, 32): Limits(32, 64, 91, 97),
        ("coded_forward", False, 16): Limits(32, 64, 90, 97),
        ("coded_forward", True, 16): Limits(32, 64, 89, 96),
        ("coded_backward", False, 32): Limits(48, 40, 100, 100),
        ("coded_backward", False, 16): Limits(48, 37, 101, 101),
        ("coded_backward_bias", True, 32): Limits(24, 69, 99, 99),
        ("coded_backward_bias", True, 16): Limits(24, 80, 99, 100),
        ("gate_dropout_forward", False, 32): Limits(28, 72, 94, 97),
        ("gate_dropout_forward", True, 32): Limits(28, 72, 93, 97),
        ("gate_dropout_forward", False, 16): Limits(40, 48, 73, 88),
        ("gate_dropout_forward", True, 16): Limits(40, 48, 71, 86),
        ("gate_dropout_backward", False, 32): Limits(28, 70, 101, 101),
        ("gate_dropout_backward", True, 32): Limits(28, 72, 100, 101),
        ("gate_dropout_backward", False, 16): Limits(32, 64, 100, 100),
        ("gate_dropout_backward", True, 16): Limits(32, 64, 99, 100),
        ("gate_dropout_backward_bias", True, 32): Limits(24, 79, 98, 100),
        ("gate_dropout_backward_bias", True, 16): Limits(16, 95, 96, 99),
        ("glu_dropout_forward", False, 32): Limits(28, 72, 101, 101),
        ("glu_dropout_forward", False, 16): Limits(32, 64, 96, 100),
        ("glu_dropout_backward", False, 32): Limits(28, 72, 101, 101),
        ("glu_dropout_backward", False, 16): Limits(24, 80, 96, 100),
    },
    "triton": {
        ("gate_forward", False, 32): Limits(32, 57, 97, 98),
        ("gate_forward", True, 32): Limits(40, 44, 97, 99),
        ("gate_forward", False, 16): Limits(40, 44, 91, 97),
        ("gate_forward", True, 16): Limits(32, 56, 90, 97),
        ("gate_backward", False, 32): Limits(40, 48, 100, 102),
        ("gate_backward", True, 32): Limits(40, 42, 99, 102),
        ("gate_backward", False, 16): Limits(32, 62, 97, 101),
        ("gate_backward", True, 16): Limits(40, 42, 97, 102),
        ("gate_backward_bias", True, 32): Limits(32, 62, 100, 101),
        ("gate_backward_bias", True, 16): Limits(16, 102, 99, 101),
        ("gate_double_backward", False, 32): Limits(64, 32, 105, 104),
        ("gate_double_backward", True, 32): Limits(64, 32, 105, 104),
        ("gate_double_backward", False, 16): Limits(24, 78, 91, 100),
        ("gate_double_backward", True, 16): Limits(32, 64, 92, 101),
        ("glu_forward", False, 32): Limits(64, 32, 102, 102),
        ("glu_forward", True, 32): Limits(64, 32, 102, 102),
        ("glu_forward", False, 16): Limits(48, 38, 101, 102),
        ("glu_forward", True, 16): Limits(48, 36, 101, 102),
        ("glu_backward", False, 32): Limits(48, 40, 100, 102),
        ("glu_backward", False, 16): Limits(32, 64, 99, 101),
        ("glu_backward_weight", True, 32): Limits(40, 48, 102, 102),
        ("glu_backward_weight", True, 16): Limits(24, 71, 99, 101),
        ("soi_forward", False, 32): Limits(36, 52, 96, 97),
        ("soi_forward", True, 32): Limits(28, 66, 94, 97),
        ("soi_forward", False, 16): Limits(28, 72, 91, 95),
        ("soi_forward", True, 16): Limits(20, 96, 92, 95),
        ("soi_cdf_forward", True, 32): Limits(28, 71, 86, 95),
        ("soi_cdf_forward", True, 16): Limits(16, 128, 88, 94),
        ("soi_backward", False, 32): Limits(40, 48, 97, 97),
        ("soi_backward", False, 16): Limits(48, 40, 96, 96),
        ("soi_backward_bias", True, 32): Limits(48, 40, 93, 94),
        ("soi_backward_bias", True, 16): Limits(48, 39, 93, 94),
        ("cdf_gate_forward", True, 32): Limits(32, 56, 82, 94),
        ("cdf_gate_forward", True, 16): Limits(24, 71, 80, 92),
        ("cdf_gate_backward", True, 32): Limits(16, 101, 88, 97),
        ("cdf_gate_backward", True, 16): Limits(16, 102, 89, 97),
    },
}

# Of the passes whose results are quantised: by pass, what shares a scale, and bits of a number.
QUANTIZED: dict[tuple[str, str, int], Limits] = {
    ("forward", "BlockWise1x32", 32): Limits(32, 64, 69, 84),
    ("forward", "BlockWise1x32", 16): Limits(28, 72, 67, 82),
    ("forward", "TensorWise", 32): Limits(32, 64, 70, 85),
    ("forward", "TensorWise", 16): Limits(28, 72, 67, 82),
    ("forward", "RowWise", 32): Limits(32, 64, 55, 67),
    ("forward", "RowWise", 16): Limits(40, 43, 59, 72),
    ("forward", "RowWise, twice", 32): Limits(32, 64, 61, 75),
    ("forward", "RowWise, twice", 16): Limits(24, 72, 56, 69),
    ("forward", "BlockWise1x128", 32): Limits(32, 64, 65, 80),
    ("forward", "BlockWise1x128", 16): Limits(24, 72, 64, 78),
    ("forward with a bias", "BlockWise1x32", 32): Limits(32, 64, 69, 84),
    ("forward with a bias", "BlockWise1x32", 16): Limits(24, 80, 67, 81),
    ("forward with a bias", "TensorWise", 32): Limits(32, 64, 70, 85),
    ("forward with a bias", "TensorWise", 16): Limits(24, 80, 66, 80),
    ("forward with a bias", "RowWise", 32): Limits(32, 64, 55, 67),
    ("forward with a bias", "RowWise", 16): Limits(32, 60, 55, 67),
    ("forward with a bias", "RowWise, twice", 32): Limits(32, 64, 61, 75),
    ("forward with a bias", "RowWise, twice", 16): Limits(24, 80, 56, 68),
    ("forward with a bias", "BlockWise1x128", 32): Limits(32, 64, 65, 80),
    ("forward with a bias", "BlockWise1x128", 16): Limits(24, 80, 63, 77),
    ("GLU forward", "BlockWise1x32", 32): Limits(20, 96, 102, 104),
    ("GLU forward", "BlockWise1x32", 16): Limits(20, 96, 94, 102),
    ("GLU forward", "TensorWise", 32): Limits(20, 96, 103, 106),
    ("GLU forward", "TensorWise", 16): Limits(20, 96, 94, 102),
    ("GLU forward", "RowWise", 32): Limits(32, 64, 95, 103),
    ("GLU forward", "RowWise", 16): Limits(32, 57, 88, 101),
    ("GLU forward", "RowWise, twice", 32): Limits(16, 96, 95, 102),
    ("GLU forward", "RowWise, twice", 16): Limits(16, 96, 86, 96),
    ("GLU forward", "BlockWise1x128", 32): Limits(16, 96, 97, 102),
    ("GLU forward", "BlockWise1x128", 16): Limits(16, 96, 91, 99),
    ("backward", "BlockWise1x32", 32): Limits(20, 96, 89, 101),
    ("backward", "BlockWise1x32", 16): Limits(16, 108, 89, 100),
    ("backward", "RowWise", 32): Limits(32, 64, 78, 92),
    ("backward", "RowWise", 16): Limits(32, 64, 80, 95),
    ("backward", "RowWise, twice", 32): Limits(16, 96, 82, 94),
    ("backward", "RowWise, twice", 16): Limits(16, 108, 81, 94),
    ("backward", "BlockWise1x128", 32): Limits(16, 96, 86, 97),
    ("backward", "BlockWise1x128", 16): Limits(16, 108, 86, 98),
    ("backward with a bias gradient", "BlockWise1x32", 32): Limits(20, 96, 85, 98),
    ("backward with a bias gradient", "BlockWise1x32", 16): Limits(16, 128, 85, 97),
    ("backward with a bias gradient", "BlockWise1x128", 32): Limits(16, 96, 78, 91),
    ("backward with a bias gradient", "BlockWise1x128", 16): Limits(16, 128, 79, 92),
    ("GLU backward", "BlockWise1x32", 32): Limits(16, 128, 87, 100),
    ("GLU backward", "BlockWise1x32", 16): Limits(16, 128, 85, 97),
    ("GLU backward", "RowWise", 32): Limits(16, 114, 76, 90),
    ("GLU backward", "RowWise", 16): Limits(16, 122, 75, 90),
    ("GLU backward", "RowWise, twice", 32): Limits(16, 128, 82, 94),
    ("GLU backward", "RowWise, twice", 16): Limits(16, 128, 76, 90),
    ("GLU backward", "BlockWise1x128", 32): Limits(16, 128, 85, 98),
    ("GLU backward", "BlockWise1x128", 16): Limits(16, 128, 82, 96),
    ("cast", "BlockWise1x32", 32): Limits(32, 64, 100, 100),
    ("cast", "BlockWise1x32", 16): Limits(28, 72, 98, 99),
    ("cast", "RowWise", 32): Limits(48, 40, 101, 102),
    ("cast", "RowWise", 16): Limits(40, 41, 100, 101),
    ("cast", "RowWise, twice", 32): Limits(32, 64, 101, 102),
    ("cast", "RowWise, twice", 16): Limits(24, 72, 100, 101),
    ("cast", "BlockWise1x128", 32): Limits(32, 64, 100, 100),
    ("cast", "BlockWise1x128", 16): Limits(24, 72, 98, 99),
}


def reached(case: Case, work: Work) -> Limits:
    h200, h100 = (Launch(MACHINES[m], case, work, 256).percent for m in ("H200", "H100"))
    return Limits(work.resident_warps, work.registers, floor(h200), floor(h100))


def beyond(
    found: Mapping[Family, list[Limits]], allowed: Mapping[Family, Limits]
) -> dict[Family, tuple[Limits, Limits]]:
    """The families that need more than they may take, or are slower, and what they may."""
    wrong = {}
    for family, of_cases in found.items():
        warps, registers, h200, h100 = zip(*of_cases, strict=True)
        x, most = Limits(min(warps), max(registers), min(h200), min(h100)), allowed[family]
        slower = x.h200 < most.h200 or x.h100 < most.h100
        if slower or x.warps < most.warps or x.registers > most.registers:
            wrong[family] = x, most
    return wrong
