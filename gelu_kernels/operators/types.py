"""The rows of the table of operators.

The schema of an operator, in csrc/ops, gives its name, arguments, results and tags. A row of the
table adds what a schema cannot express.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from math import prod

import torch
from torch._ops import OpOverload

Shape = tuple[int, ...]


class Extent(Enum):
    """The size of a tensor relative to y, the result of a forward pass."""

    ELEMENTS = "as y"
    HALVES = "x and up side by side: the last dimension is twice that of y"
    COLUMNS = "a number for each element of the last dimension of y"
    ROWS = "a number for each row (last dimension) of y"
    BITS = "a bit for each element of y, eight in a byte"
    NIBBLES = "four bits for each element of y, two in a byte"
    BYTES = "a byte for each element of y"
    SCALAR = "one integer"
    NUMBER = "one number, in the dtype of y"

    def shape(self, y: Shape) -> Shape:
        match self:
            case Extent.ELEMENTS:
                return y
            case Extent.HALVES:
                return (*y[:-1], 2 * y[-1])
            case Extent.COLUMNS:
                return y[-1:]
            case Extent.ROWS:
                return y[:-1]
            case Extent.BITS:
                return (-(-prod(y) // 8),)
            case Extent.NIBBLES:
                return (-(-prod(y) // 2),)
            case Extent.BYTES:
                return (prod(y),)
        return ()

    def bytes(self, y: Shape, itemsize: int) -> float:
        """The memory traffic for the tensor in a pass over y."""
        if self in IN_ROW_MAJOR_ORDER:
            return prod(y) * IN_ROW_MAJOR_ORDER[self] / 8
        return 0 if self in (Extent.SCALAR, Extent.NUMBER) else prod(self.shape(y)) * itemsize


# The tensors in row-major order, whatever the strides of y, and their bits per element of y.
IN_ROW_MAJOR_ORDER = {Extent.BITS: 1, Extent.NIBBLES: 4, Extent.BYTES: 8}

# Every other tensor is as large as y, except the halves that a row names.
EXTENTS = {
    "bias": Extent.COLUMNS,
    "dbias": Extent.COLUMNS,
    "weight": Extent.ROWS,
    "dweight": Extent.ROWS,
    "loc": Extent.COLUMNS,
    "dloc": Extent.COLUMNS,
    "scale": Extent.COLUMNS,
    "dscale": Extent.COLUMNS,
    "mask": Extent.BITS,
    "code": Extent.BYTES,
    "seed": Extent.SCALAR,
}


@dataclass(frozen=True)
class Operator:
    name: str
    family: str  # the folder of its kernels
    _: KW_ONLY
    halves: tuple[str, ...] = ()  # tensors that hold x and up side by side
    # Tensors that are one number, where another form takes a vector along the last dimension.
    single: tuple[str, ...] = ()
    nibbles: tuple[str, ...] = ()  # codes of 4 bits instead of 8

    @property
    def overload(self) -> OpOverload:
        return getattr(torch.ops.gelu_kernels, self.name).default

    def named(self, args: Sequence[object]) -> dict[str, object]:
        """Positional arguments by their names; trailing ones may be left out."""
        names = [argument.name for argument in self.overload._schema.arguments]
        return dict(zip(names, args, strict=False))

    def _extent(self, tensor: str) -> Extent:
        if tensor in self.single:
            return Extent.NUMBER
        if tensor in self.nibbles:
            return Extent.NIBBLES
        return Extent.HALVES if tensor in self.halves else EXTENTS.get(tensor, Extent.ELEMENTS)

    @property
    def inputs(self) -> dict[str, Extent]:
        """The tensors among the arguments, by name; optional ones as well."""
        arguments = self.overload._schema.arguments
        return {a.name: self._extent(a.name) for a in arguments if "Tensor" in str(a.type)}

    @property
    def outputs(self) -> dict[str, Extent]:
        return {r.name: self._extent(r.name) for r in self.overload._schema.returns}


@dataclass(frozen=True)
class CoreOperator(Operator):
    """A pure function with a kernel for each device."""

    linear_in: tuple[str, ...] = ()  # arguments in which it is linear if the others are fixed
    linear_without_numbers: tuple[str, ...] = ()  # likewise, without limit and up_offset
    # The largest error of a result in units of its last place, for float32 and float64 and for 16
    # bits; 0 where nothing is rounded. For products and for sums with the bias, see the functions.
    ulp: float = 4
    ulp_of_16_bits: float = 0.5

    def linear(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """The arguments in which a call is linear."""
        has_numbers = arguments.get("limit") is not None or arguments.get("up_offset", 0) != 0
        return self.linear_in + (() if has_numbers else self.linear_without_numbers)

    def tolerance(self, dtype: torch.dtype) -> float:
        return self.ulp_of_16_bits if dtype.itemsize == 2 else self.ulp

    def bytes_moved(self, y: Shape, itemsize: int, without: tuple[str, ...] = ()) -> float:
        """Each input read once and each result written once."""
        tensors = {**self.inputs, **self.outputs}
        return sum(e.bytes(y, itemsize) for name, e in tensors.items() if name not in without)


@dataclass(frozen=True)
class PublicOperator(Operator):
    """A composition of core operators that users call, with a row for each of its forms."""

    label: str  # of this form, in tables
    operands: tuple[str, ...]  # the tensors that this form takes
    formula: str  # in terms of a gate g and the operands
    _: KW_ONLY
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)  # options with values
    # In gelu_kernels.functional and gelu_kernels.nn: a name, and its gate if it has only one.
    functions: dict[str, str | None] = field(default_factory=dict, hash=False)
    modules: dict[str, str | None] = field(default_factory=dict, hash=False)
    stem: str = ""  # prefix of its core operators' names, by default the family

    @property
    def forward(self) -> str:
        """The core operator of the forward pass."""
        return f"{self.stem or self.family}{'_halves' if self.halves else ''}_forward"

    @property
    def backward(self) -> str:
        """The core operator of a backward pass to every operand that has a gradient."""
        summed = [f"_{name}" for name in ("bias", "weight") if name in self.operands]
        # The backward pass of an SOI map takes only the mask; gradients of loc and scale are zeros.
        stem = "soi_" if self.family == "soi" else self.forward.removesuffix("forward")
        return "".join([stem, "backward", *summed])

    @property
    def is_random(self) -> bool:
        """Whether it draws a mask."""
        return torch.Tag.nondeterministic_seeded in self.overload.tags

    @property
    def selector(self) -> str:
        """The keyword that chooses the gate: ``approximate``, by PyTorch's names, or ``gate``."""
        names = [a.name for a in self.overload._schema.arguments]
        return "approximate" if "approximate" in names else "gate"
