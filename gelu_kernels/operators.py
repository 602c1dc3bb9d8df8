"""The table of operators: what sharding, the choice of a backend, the benchmark, the tests and the
docs need to know of each.

A schema, in csrc/ops, has an operator's name, arguments, results and tags. A row here adds what a
schema cannot say.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from functools import partial
from inspect import signature
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from gelu_kernels import _C, functional

Shape = tuple[int, ...]
APPROXIMATE: dict[str, str | None] = dict(_C.gates())  # PyTorch's names of the gates


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


CORE = (
    CoreOperator("gate_forward", "gate"),
    CoreOperator("gate_backward", "gate", linear_in=("dy",)),
    CoreOperator("gate_backward_bias", "gate", linear_in=("dy",)),
    CoreOperator(
        "gate_double_backward", "gate", linear_in=("ddx", "dy"), ulp=8, ulp_of_16_bits=0.51
    ),
    CoreOperator(
        "glu_forward",
        "glu",
        linear_in=("weight",),
        linear_without_numbers=("up",),
        ulp=4.5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator("glu_backward", "glu", linear_in=("dy", "weight"), ulp=5, ulp_of_16_bits=0.6),
    CoreOperator("glu_backward_weight", "glu", linear_in=("dy",), ulp=6, ulp_of_16_bits=0.65),
    CoreOperator(
        "glu_halves_forward",
        "glu",
        halves=("x",),
        linear_in=("weight",),
        ulp=4.5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator(
        "glu_halves_backward",
        "glu",
        halves=("x", "dx"),
        linear_in=("dy", "weight"),
        ulp=5,
        ulp_of_16_bits=0.6,
    ),
    CoreOperator(
        "glu_halves_backward_weight",
        "glu",
        halves=("x", "dx"),
        linear_in=("dy",),
        ulp=6,
        ulp_of_16_bits=0.65,
    ),
    CoreOperator("soi_forward", "soi", ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_cdf_forward", "soi", ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_backward", "soi", linear_in=("dy",), ulp=0, ulp_of_16_bits=0),
    CoreOperator("soi_backward_bias", "soi", linear_in=("dy",)),
    CoreOperator("cdf_gate_forward", "cdf", ulp=6, ulp_of_16_bits=0.52),
    CoreOperator("cdf_gate_backward", "cdf", linear_in=("dy",), ulp=9, ulp_of_16_bits=0.52),
    CoreOperator("coded_forward", "coded", ulp=5, ulp_of_16_bits=0.51),  # without dropout 4 and 0.5
    # Of the product of dy and the derivative that the code stands for.
    CoreOperator("coded_backward", "coded", linear_in=("dy",), ulp=3, ulp_of_16_bits=0.501),
    CoreOperator("coded_backward_bias", "coded", linear_in=("dy",), ulp=3, ulp_of_16_bits=0.501),
    CoreOperator("gate_dropout_forward", "dropout", ulp=5, ulp_of_16_bits=0.57),
    CoreOperator(
        "gate_dropout_backward", "dropout", linear_in=("dy",), ulp=5.5, ulp_of_16_bits=0.68
    ),
    CoreOperator(
        "gate_dropout_backward_bias", "dropout", linear_in=("dy",), ulp=5.5, ulp_of_16_bits=0.68
    ),
    CoreOperator("glu_dropout_forward", "dropout", linear_in=("up",), ulp=5.5, ulp_of_16_bits=0.6),
    CoreOperator("glu_dropout_backward", "dropout", linear_in=("dy",), ulp=6.5, ulp_of_16_bits=0.7),
    CoreOperator(
        "glu_dropout_halves_forward", "dropout", halves=("x",), ulp=5.5, ulp_of_16_bits=0.6
    ),
    CoreOperator(
        "glu_dropout_halves_backward",
        "dropout",
        halves=("x", "dx"),
        linear_in=("dy",),
        ulp=6.5,
        ulp_of_16_bits=0.7,
    ),
)

# Operators whose results are numbers in eight bits and scales, which Extent does not describe.
QUANTIZED = tuple(
    Operator(name, "quantized")
    for name in (
        "quantized_gate_forward",
        "quantized_glu_forward",
        "quantized_gate_backward",
        "quantized_gate_backward_bias",
        "quantized_glu_backward",
        "quantized_glu_halves_backward",
    )
)

# Gradients of a weight, whose shape Extent does not describe; composed of other operators.
LINEAR = tuple(
    Operator(name, "linear")
    for name in ("gate_linear_backward_weight", "glu_linear_backward_weight")
)

# Public operators, of shapes that Extent does not describe.
OTHERS = (
    Operator("gate_linear", "linear"),
    Operator("glu_linear", "linear"),
    Operator("quantized_gate", "quantized"),
    Operator("quantized_glu", "quantized"),
)

Gate = Callable[[Tensor], Tensor]
Dropout = Callable[[Tensor, float], Tensor]
Clamp = Callable[..., Tensor]


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

    def of_operands(self, function: Callable[..., Tensor], **options: object) -> partial[Tensor]:
        """A function of the operands in their order, some of which are keywords of `function`."""
        keywords = [a.name for a in self.overload._schema.arguments if a.kwarg_only]
        named = tuple(name for name in self.operands if name in keywords)
        count = len(self.operands) - len(named)

        def of_operands(*operands: Tensor, **options: object) -> Tensor:
            others = dict(zip(named, operands[count:], strict=True))
            return function(*operands[:count], **others, **options)

        return partial(of_operands if named else function, **self.numbers, **options)

    def function_of(self, gate: str) -> partial[Tensor] | None:
        """The function of the operands that computes the gate, if one does."""
        for name, only in self.functions.items():
            function = getattr(functional, name)
            if only == gate:
                return self.of_operands(function)
            if only is None and "gate" in signature(function).parameters:
                return self.of_operands(function, gate=gate)
            if only is None and APPROXIMATE[gate]:
                return self.of_operands(function, approximate=APPROXIMATE[gate])
        return None

    def formula_of(
        self,
        gate: Gate,
        distribution: Gate,
        dropout: Dropout = F.dropout,
        clamp: Clamp = torch.clamp,
    ) -> Callable[..., Tensor]:
        """A function of the operands in plain PyTorch, as short as one writes it: it is timed. Of a
        gate x F(x) and of F."""
        if p := self.numbers.get("p"):
            kept = replace(self, numbers={}).formula_of(gate, distribution)
            return lambda *operands: dropout(kept(*operands), p)
        if "loc" in self.operands:
            return lambda x, loc, scale: x * distribution((x - loc) / scale)

        def product(x: Tensor, up: Tensor, weight: Tensor | None = None) -> Tensor:
            if limit := self.numbers.get("limit"):
                x, up = clamp(x, max=limit), clamp(up, -limit, limit)
            if up_offset := self.numbers.get("up_offset"):
                up = up + up_offset
            y = gate(x) * up
            return y if weight is None else y * weight.unsqueeze(-1)

        if self.halves:
            return lambda x, *weight: product(*x.chunk(2, -1), *weight)
        if "up" in self.operands:
            return product
        return (lambda x, bias: gate(x + bias)) if "bias" in self.operands else gate


P = {"p": 0.3}  # of dropout

# Of the form that has all of a GLU's options. Some of the tests' numbers are beyond the limit.
NUMBERS = {"limit": 1.5, "up_offset": 1.0}

PUBLIC = (
    PublicOperator(
        "fused_gelu",
        "gate",
        "gelu",
        ("x",),
        "g(x)",
        functions={"gelu": None},
        modules={"GELU": None},
    ),
    PublicOperator(
        "fused_bias_gelu",
        "gate",
        "bias_gelu",
        ("x", "bias"),
        "g(x + bias)",
        functions={"bias_gelu": None},
        modules={"BiasGELU": None, "LinearGELU": None},
    ),
    PublicOperator(
        "fused_gate",
        "gate",
        "gate",
        ("x",),
        "g(x)",
        functions={"silu": "logistic", "lalu": "laplace", "cauchy_gate": "cauchy", "gate": None},
        modules={"SiLU": "logistic", "LaLU": "laplace", "CauchyGate": "cauchy"},
    ),
    PublicOperator(
        "fused_gate", "gate", "bias_gate", ("x", "bias"), "g(x + bias)", functions={"gate": None}
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "geglu",
        ("x", "up"),
        "g(x) up",
        functions={"swiglu": "logistic", "geglu": None, "glu": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "geglu_halves",
        ("x",),
        "g(x) up, the halves of one tensor",
        halves=("x",),
        functions={"swiglu": "logistic", "geglu": None, "glu": None},
        modules={"SwiGLU": "logistic", "GEGLU": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "glu",
        ("x", "up", "weight"),
        "g(min(x, limit)) (clamp(up, -limit, limit) + up_offset) weight",
        numbers=NUMBERS,
        functions={"glu": None},
    ),
    PublicOperator(
        "fused_glu",
        "glu",
        "glu_halves",
        ("x", "weight"),
        "the same, of the halves of one tensor",
        halves=("x",),
        numbers=NUMBERS,
        functions={"glu": None},
    ),
    PublicOperator(
        "soi_map",
        "soi",
        "soi_map",
        ("x",),
        "m x, m ~ Bernoulli(F(x))",
        functions={"soi_map": None},
        modules={"SOIMap": None},
    ),
    PublicOperator(
        "fused_bias_soi_map",
        "soi",
        "bias_soi_map",
        ("x", "bias"),
        "m (x + bias), m ~ Bernoulli(F(x + bias))",
        functions={"bias_soi_map": None},
    ),
    PublicOperator(
        "soi_map",
        "soi",
        "cdf_soi_map",
        ("x", "loc", "scale"),
        "m x, m ~ Bernoulli(F((x - loc)/scale))",
        functions={"soi_map": None},
        stem="soi_cdf",
    ),
    PublicOperator(
        "cdf_gate",
        "cdf",
        "cdf_gate",
        ("x", "loc", "scale"),
        "x F((x - loc)/scale)",
        single=("loc", "scale"),
        functions={"cdf_gate": None},
        modules={"CDFGate": None},
        stem="cdf_gate",
    ),
    PublicOperator(
        "cdf_gate",
        "cdf",
        "cdf_gate_columns",
        ("x", "loc", "scale"),
        "x F((x - loc)/scale), vectors loc and scale",
        functions={"cdf_gate": None},
        stem="cdf_gate",
    ),
    PublicOperator(
        "fused_bias_gelu_dropout",
        "dropout",
        "bias_gelu_dropout",
        ("x", "bias"),
        "m g(x + bias)/(1 - p), m ~ Bernoulli(1 - p)",
        numbers=P,
        functions={"bias_gelu_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_gate_dropout",
        "dropout",
        "gate_dropout",
        ("x",),
        "m g(x)/(1 - p)",
        numbers=P,
        functions={"gate_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_gate_dropout",
        "dropout",
        "bias_gate_dropout",
        ("x", "bias"),
        "m g(x + bias)/(1 - p)",
        numbers=P,
        functions={"gate_dropout": None},
        stem="gate_dropout",
    ),
    PublicOperator(
        "fused_glu_dropout",
        "dropout",
        "geglu_dropout",
        ("x", "up"),
        "m g(x) up/(1 - p)",
        numbers=P,
        functions={"glu_dropout": None},
        stem="glu_dropout",
    ),
    PublicOperator(
        "fused_glu_dropout",
        "dropout",
        "geglu_dropout_halves",
        ("x",),
        "m g(x) up/(1 - p), the halves of one tensor",
        halves=("x",),
        numbers=P,
        functions={"glu_dropout": None},
        stem="glu_dropout",
    ),
)


def core(name: str) -> CoreOperator:
    return next(op for op in CORE if op.name == name)
