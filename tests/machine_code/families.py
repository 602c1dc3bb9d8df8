"""What CUDA's kernels for sm_90 may take of a processor, and how fast they must be, predicted."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Over gates and dtypes."""

    warps: int  # that a processor has room for, at the least
    registers: int  # of a thread, at the most
    # The least predicted speed at 256 MiB, % of a copy's.
    h200: int
    h100: int


# By core operator, whether it has vectors along the columns, and bits of a number.
FAMILIES: dict[tuple[str, bool, int], Limits] = {
    ("gate_forward", False, 32): Limits(48, 40, 98, 99),
    ("gate_forward", True, 32): Limits(48, 40, 98, 99),
    ("gate_forward", False, 16): Limits(48, 40, 92, 98),
    ("gate_forward", True, 16): Limits(48, 40, 93, 98),
    ("gate_backward", False, 32): Limits(48, 40, 102, 102),
    ("gate_backward", True, 32): Limits(48, 40, 102, 102),
    ("gate_backward", False, 16): Limits(48, 40, 101, 102),
    ("gate_backward", True, 16): Limits(48, 40, 101, 102),
    ("gate_backward_bias", True, 32): Limits(16, 96, 94, 99),
    ("gate_backward_bias", True, 16): Limits(16, 116, 92, 99),
    ("gate_double_backward", False, 32): Limits(28, 67, 105, 104),
    ("gate_double_backward", True, 32): Limits(32, 60, 105, 104),
    ("gate_double_backward", False, 16): Limits(28, 72, 94, 103),
    ("gate_double_backward", True, 16): Limits(28, 72, 93, 102),
    ("glu_forward", False, 32): Limits(48, 40, 102, 102),
    ("glu_forward", True, 32): Limits(32, 53, 99, 102),
    ("glu_forward", False, 16): Limits(48, 40, 102, 102),
    ("glu_forward", True, 16): Limits(32, 64, 86, 97),
    ("glu_backward", False, 32): Limits(28, 72, 102, 102),
    ("glu_backward", False, 16): Limits(28, 72, 100, 102),
    ("glu_backward_weight", True, 32): Limits(16, 111, 93, 99),
    ("glu_backward_weight", True, 16): Limits(16, 126, 83, 94),
    ("soi_forward", False, 32): Limits(40, 47, 95, 96),
    ("soi_forward", True, 32): Limits(28, 70, 94, 95),
    ("soi_forward", False, 16): Limits(28, 72, 93, 95),
    ("soi_forward", True, 16): Limits(24, 74, 91, 94),
    ("soi_cdf_forward", True, 32): Limits(24, 74, 94, 95),
    ("soi_cdf_forward", True, 16): Limits(24, 80, 78, 90),
    ("soi_backward", False, 32): Limits(48, 39, 95, 96),
    ("soi_backward", False, 16): Limits(64, 32, 96, 96),
    ("soi_backward_bias", True, 32): Limits(16, 91, 93, 94),
    ("soi_backward_bias", True, 16): Limits(16, 96, 93, 94),
    ("cdf_gate_forward", True, 32): Limits(32, 64, 64, 78),
    ("cdf_gate_forward", True, 16): Limits(20, 95, 44, 54),
    ("cdf_gate_backward", True, 32): Limits(16, 110, 74, 87),
    ("cdf_gate_backward", True, 16): Limits(16, 128, 55, 67),
    ("coded_forward", False, 32): Limits(24, 80, 56, 68),
    ("coded_forward", True, 32): Limits(24, 80, 56, 68),
    ("coded_forward", False, 16): Limits(24, 80, 46, 56),
    ("coded_forward", True, 16): Limits(24, 80, 46, 56),
    ("coded_backward", False, 32): Limits(64, 32, 100, 100),
    ("coded_backward", False, 16): Limits(64, 31, 101, 101),
    ("coded_backward_bias", True, 32): Limits(16, 86, 97, 98),
    ("coded_backward_bias", True, 16): Limits(16, 100, 98, 99),
    ("gate_dropout_forward", False, 32): Limits(32, 59, 70, 83),
    ("gate_dropout_forward", True, 32): Limits(32, 59, 68, 82),
    ("gate_dropout_forward", False, 16): Limits(24, 80, 50, 60),
    ("gate_dropout_forward", True, 16): Limits(24, 80, 47, 58),
    ("gate_dropout_backward", False, 32): Limits(32, 59, 94, 100),
    ("gate_dropout_backward", True, 32): Limits(32, 59, 94, 100),
    ("gate_dropout_backward", False, 16): Limits(32, 59, 88, 97),
    ("gate_dropout_backward", True, 16): Limits(32, 59, 86, 96),
    ("gate_dropout_backward_bias", True, 32): Limits(16, 118, 90, 97),
    ("gate_dropout_backward_bias", True, 16): Limits(16, 123, 86, 95),
    ("glu_dropout_forward", False, 32): Limits(32, 59, 95, 100),
    ("glu_dropout_forward", False, 16): Limits(24, 80, 73, 87),
    ("glu_dropout_backward", False, 32): Limits(24, 80, 99, 101),
    ("glu_dropout_backward", False, 16): Limits(24, 77, 77, 90),
}
