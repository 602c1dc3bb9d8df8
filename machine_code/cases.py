"""What machine code is looked at for: the operators, each where vectors serve it."""

from itertools import product
from typing import NamedTuple

from machine_code.backends import BACKENDS

GATES = ["Normal", "NormalTanh", "Logistic1702"]
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}
GATED = {
    "forward": 1,
    "backward": 2,
    "double_backward": 3,
    "glu_forward": 2,
    "glu_backward": 3,
    "column_sums": 2,
    "soi_forward": 1,
}
INPUTS = {**GATED, "soi_backward": 1, "soi_column_sums": 1}  # but for the bias and the mask
OUTPUTS = {op: 2 if op == "glu_backward" else 1 for op in INPUTS}
VECTOR_BYTES = 16


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
    def columns(self) -> list[str]:
        """Of a table."""
        return [self.op, self.gate, self.dtype, "biased" if self.biased else "", self.backend]

    @property
    def moved(self) -> float:
        """Bytes that an element passes through memory."""
        mask = 1 / 8 if self.op.startswith("soi_") else 0
        return (INPUTS[self.op] + OUTPUTS[self.op]) * BYTES[self.dtype] + mask


# The gradients of a bias are those of an operator that has one.
BIASED = {
    "glu_forward": [False],
    "glu_backward": [False],
    "soi_backward": [False],
    "column_sums": [True],
    "soi_column_sums": [True],
}

CASES = [
    Case(*case)
    for op in INPUTS
    for case in product(
        [op], GATES if op in GATED else [""], BYTES, BIASED.get(op, [False, True]), BACKENDS
    )
]
