"""What the table says of an operator.

A schema, in csrc/ops, has an operator's name, arguments, results and tags. A row of the table adds
what a schema cannot say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from math import prod

import torch
from torch._ops import OpOverload

Shape = tuple[int, ...]


class Extent(Enum):
    """How large a tensor is beside y, the result of a forward pass."""

    ELEMENTS = "as y"
    HALVES = "x and up side by side: the last dimension is twice that of y"
    COLUMNS = "a number for each element of the last dimension of y"
    ROWS = "a number for each row of y, which its last dimension is"
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
        """Of memory that a pass over y moves for the tensor."""
        if self in IN_ROW_MAJOR_ORDER:
            return prod(y) * IN_ROW_MAJOR_ORDER[self] / 8
        return 0 if self in (Extent.SCALAR, Extent.NUMBER) else prod(self.shape(y)) * itemsize


# The extents of what is in row-major order, whatever the strides of y: bits for each element.
IN_ROW_MAJOR_ORDER = {Extent.BITS: 1, Extent.NIBBLES: 4, Extent.BYTES: 8}

# Every other tensor is as large as y, but for the halves that a row names.
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
    halves: tuple[str, ...] = ()  # the tensors that hold x and up side by side
    # The tensors that are one number, though they may be a vector along the last dimension.
    single: tuple[str, ...] = ()
    nibbles: tuple[str, ...] = ()  # the codes that have 4 bits and not 8

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

    linear_in: tuple[str, ...] = ()  # arguments in each of which, the others fixed, it is linear
    linear_without_numbers: tuple[str, ...] = ()  # likewise, in a call without limit and up_offset
    # The largest error of a result in units of its last place, for float32 and float64 and for 16
    # bits; 0 where nothing is rounded. Of a product or a sum with the bias, see the functions.
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
    """A composition of core operators that users call. One that has two forms has two rows."""

    label: str  # of the form, in tables
    operands: tuple[str, ...]  # the tensors that this form takes
    formula: str  # of a gate g and of the operands
    _: KW_ONLY
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)  # that it takes too
    # In gelu_kernels.functional and in gelu_kernels.nn: a name, and the gate if it is of one alone.
    functions: dict[str, str | None] = field(default_factory=dict, hash=False)
    modules: dict[str, str | None] = field(default_factory=dict, hash=False)
    stem: str = ""  # of its core operators' names, if that is not the family

    @property
    def forward(self) -> str:
        """The core operator of the forward pass."""
        return f"{self.stem or self.family}{'_halves' if self.halves else ''}_forward"

    @property
    def backward(self) -> str:
        """The core operator of a backward pass to every operand that has a gradient."""
        summed = [f"_{name}" for name in ("bias", "weight") if name in self.operands]
        # An SOI map's gradient takes the mask alone, and loc and scale have none but zeros.
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
