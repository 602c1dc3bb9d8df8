"""What machine code is looked at for: the operators, each where vectors serve it."""

from itertools import product
from typing import NamedTuple

BACKENDS = ["cuda", "triton"]
GATES = ["Normal", "NormalTanh", "Logistic1702"]
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
GATED = {"forward": 1, "backward": 2, "double_backward": 3, "column_sums": 2, "soi_forward": 1}
INPUTS = {**GATED, "soi_backward": 1, "soi_column_sums": 1}  # but for the bias and the mask
VECTOR_BYTES = 16

# Measured bandwidth; four instructions of 32 threads in each cycle of each processor.
H100_BYTES_PER_SECOND = 3.0e12
H100_SLOTS_PER_SECOND = 132 * 4 * 32 * 1.7e9


class Case(NamedTuple):
    op: str
    gate: str
    dtype: str
    biased: bool
    backend: str

    @property
    def name(self) -> str:
        """That of its Triton kernel."""
        return " ".join(
            [self.op, *[self.gate] * bool(self.gate), self.dtype, *["biased"] * self.biased]
        )

    @property
    def h100_limit(self) -> float:
        """Slots for an element while its bytes pass through memory."""
        mask = 1 / 8 if self.op.startswith("soi_") else 0
        moved = (INPUTS[self.op] + 1) * BYTES[self.dtype] + mask
        return moved / H100_BYTES_PER_SECOND * H100_SLOTS_PER_SECOND


# The gradients of a bias are those of an operator that has one.
BIASED = {"soi_backward": [False], "column_sums": [True], "soi_column_sums": [True]}

CASES = [
    Case(*case)
    for op in INPUTS
    for case in product(
        [op], GATES if op in GATED else [""], BYTES, BIASED.get(op, [False, True]), BACKENDS
    )
]
