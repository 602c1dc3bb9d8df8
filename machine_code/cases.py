"""The kernels whose machine code is examined: the core operators' kernels, on operands that allow
vector accesses."""

from collections.abc import Iterable, Mapping
from itertools import product
from types import ModuleType
from typing import NamedTuple

import torch

from gelu_kernels import _C
from gelu_kernels.operators.table import CORE, core
from gelu_kernels.operators.types import CoreOperator, Extent
from machine_code import cuda_code, triton_code

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
# Each has `missing_tools` and `kernels`.
BACKENDS: dict[str, ModuleType] = {"cuda": cuda_code, "triton": triton_code}
GATES = [name for name, *_ in _C.gates()]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
VECTOR_BYTES = 16

# Halves of one tensor are rows apart from each other, which the kernels of two tensors take.
KERNELS = [op for op in CORE if not op.halves]
# Those with a budget, and with code of Triton to compare. In the others, which may take a bias by a
# branch at run time, the accesses of a path are not one case's.
OPERATORS = [op for op in KERNELS if op.family not in ("coded", "dropout")]

# The word for a case whose tensors include one of these vectors, or its gradient.
VECTORS = {"bias": "biased", "weight": "weighted", "loc": "located", "scale": "located"}
GRADIENTS = [f"d{name}" for name in VECTORS]


class Case(NamedTuple):
    op: str
    gate: str
    dtype: str
    biased: bool  # or otherwise with its vectors
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
        tensors = {**self.operator.inputs, **self.operator.outputs}
        words = [word for name, word in VECTORS.items() if {name, f"d{name}"} & tensors.keys()]
        return [self.op, self.gate, self.dtype, words[0] if self.biased else "", self.backend]

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
    def vectors(self) -> int:
        """The number of vectors along the columns that are read."""
        return list(self.operator.inputs.values()).count(Extent.COLUMNS) if self.biased else 0

    @property
    def has_mask(self) -> bool:
        return "mask" in {**self.operator.inputs, **self.operator.outputs}

    @property
    def has_weights(self) -> bool:
        return self.biased and "weight" in self.operator.inputs

    @property
    def has_sums(self) -> bool:
        return has_sums(self.operator)

    @property
    def column_sums(self) -> int:
        """Gradients of vectors along the columns."""
        outputs = self.operator.outputs
        return [outputs.get(name) for name in GRADIENTS].count(Extent.COLUMNS)

    @property
    def has_seed(self) -> bool:
        return "seed" in self.operator.inputs

    def _bytes(self, tensors: Mapping[str, Extent]) -> float:
        """Of an element; a bias is read once for many rows, a weight once for many columns."""
        along = (*VECTORS, *GRADIENTS)
        sizes = (e.bytes((8,), self.itemsize) for name, e in tensors.items() if name not in along)
        return sum(sizes) / 8

    @property
    def read(self) -> float:
        """Bytes of an element."""
        return self._bytes(self.operator.inputs)

    @property
    def written(self) -> float:
        return self._bytes(self.operator.outputs)

    @property
    def moved(self) -> float:
        """Bytes that an element passes through memory."""
        return self.read + self.written


def has_gate(op: CoreOperator) -> bool:
    return any(argument.name == "gate" for argument in op.overload._schema.arguments)


def has_sums(op: CoreOperator) -> bool:
    return not op.outputs.keys().isdisjoint(GRADIENTS)


def biases(op: CoreOperator) -> list[bool]:
    """CUDA's kernel that sums the gradient of the weights serves without it too."""
    if has_sums(op) or "loc" in op.inputs:
        return [True]
    has_own = "bias" in op.inputs or op.name == "glu_forward"
    return [False, True] if has_own else [False]


def cases(operators: list[CoreOperator], backends: Iterable[str]) -> list[Case]:
    return [
        Case(op.name, *case)
        for op in operators
        for case in product(GATES if has_gate(op) else [""], DTYPES, biases(op), backends)
    ]


CASES = cases(OPERATORS, BACKENDS)
# Those whose speed is predicted.
PREDICTED = CASES + cases([op for op in KERNELS if op not in OPERATORS], ["cuda"])
