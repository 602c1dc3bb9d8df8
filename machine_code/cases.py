"""What machine code is looked at for: the kernels of the core operators, each where vectors serve
it.
"""

from itertools import product
from typing import NamedTuple

import torch

from gelu_kernels import _C
from gelu_kernels.operators import CORE, CoreOperator, Extent, core
from machine_code.backends import BACKENDS

GATES = [name for name, _ in _C.gates()]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
VECTOR_BYTES = 16

# Halves of one tensor are rows apart from each other, which the kernels of two tensors take.
OPERATORS = [op for op in CORE if not op.halves]


class Case(NamedTuple):
    op: str
    gate: str
    dtype: str
    biased: bool  # or weighted: with its vector
    backend: str

    @property
    def operator(self) -> CoreOperator:
        return core(self.op)

    @property
    def itemsize(self) -> int:
        return getattr(torch, self.dtype).itemsize

    @property
    def columns(self) -> list[str]:
        """Of a table."""
        vector = ("weighted" if self.has_weights else "biased") if self.biased else ""
        return [self.op, self.gate, self.dtype, vector, self.backend]

    @property
    def name(self) -> str:
        """The name of its Triton kernel."""
        return " ".join(filter(None, self.columns[:-1]))

    @property
    def inputs(self) -> int:
        """The number of tensors that are read element by element, in vectors."""
        return list(self.operator.inputs.values()).count(Extent.ELEMENTS)

    @property
    def outputs(self) -> int:
        return list(self.operator.outputs.values()).count(Extent.ELEMENTS)

    @property
    def has_mask(self) -> bool:
        return "mask" in {**self.operator.inputs, **self.operator.outputs}

    @property
    def has_weights(self) -> bool:
        return self.biased and "weight" in self.operator.inputs

    @property
    def has_sums(self) -> bool:
        return not {"dbias", "dweight"}.isdisjoint(self.operator.outputs)

    @property
    def moved(self) -> float:
        """Bytes that an element passes through memory; a bias is read once for many rows, a weight
        once for many columns."""
        vectors = "bias", "dbias", "weight", "dweight"
        return self.operator.bytes_moved((8,), self.itemsize, without=vectors) / 8


def has_gate(op: CoreOperator) -> bool:
    return any(argument.name == "gate" for argument in op.overload._schema.arguments)


def biases(op: CoreOperator) -> list[bool]:
    """CUDA's kernel that sums the gradient of the weights serves without it too."""
    if "dbias" in op.outputs or "dweight" in op.outputs:
        return [True]
    has_own = "bias" in op.inputs or op.name == "glu_forward"
    return [False, True] if has_own else [False]


CASES = [
    Case(op.name, *case)
    for op in OPERATORS
    for case in product(GATES if has_gate(op) else [""], DTYPES, biases(op), BACKENDS)
]
