"""Every operator as the tests call it, from its row in gelu_kernels.operators: the tensors it takes
and the results it must give, in float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp

from gelu_kernels import reference
from gelu_kernels.operators.table import APPROXIMATE, CORE, PUBLIC
from gelu_kernels.operators.types import (
    IN_ROW_MAJOR_ORDER,
    CoreOperator,
    Extent,
    Operator,
    PublicOperator,
)
from gelu_kernels.operators.workloads import formula_of, function_of
from tests.oracles import coded_oracle, soi_oracle

GATES = tuple(APPROXIMATE)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SEED = 0x123456789ABCDEF
ROUNDING = {torch.float64: 1e-13, torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}

Shape = tuple[int, ...]
Make = Callable[..., Tensor]
Results = tuple[Tensor, ...]


def normal(*shape: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(device, dtype)


def as_tuple(results: Tensor | Results) -> Results:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def positive(t: Tensor) -> Tensor:
    """A valid scale, from any numbers."""
    return t.abs().nan_to_num(1, posinf=torch.inf) + 0.5


class AsModule(torch.nn.Module):
    """A function as a module, as torch.export takes it."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> object:
        return self.function(*tensors)


@dataclass(frozen=True)
class Call:
    """An operator with a choice of its optional tensors."""

    op: Operator
    tensors: dict[str, Extent] = field(hash=False)
    name: str
    options: dict[str, object] = field(default_factory=dict, hash=False)  # other arguments

    def __str__(self) -> str:
        return self.name

    @property
    def takes_gate(self) -> bool:
        return any(a.name in ("gate", "approximate") for a in self.op.overload._schema.arguments)

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates it takes; only the first where the gate makes no difference."""
        if not self.takes_gate:
            return GATES[:1]
        if getattr(self.op, "selector", "gate") == "approximate":
            return tuple(gate for gate in GATES if APPROXIMATE[gate])
        return GATES

    @property
    def floating(self) -> list[str]:
        """The tensors of floating dtype, which can have a gradient."""
        other = {Extent.SCALAR, *IN_ROW_MAJOR_ORDER}
        return [name for name, extent in self.tensors.items() if extent not in other]

    @property
    def leading(self) -> str:
        """The tensor whose dtype, device and shape the others follow."""
        return "x" if "x" in self.tensors else "dy"

    @property
    def takes_scalars(self) -> bool:
        """Whether its tensors may be 0-d."""
        extents = {*self.tensors.values(), *self.op.outputs.values()}
        return not extents & {Extent.COLUMNS, Extent.ROWS, Extent.HALVES}

    @property
    def is_random(self) -> bool:
        return getattr(self.op, "is_random", False)

    @cached_property
    def formula(self) -> PublicOperator | None:
        """The public operator whose formula or derivative it computes."""
        if isinstance(self.op, PublicOperator):
            return self.op
        if self.op.family == "coded":
            return None
        others = "ddx", "dy", "mask", "seed"
        operands = tuple(name for name in self.tensors if name not in others)
        halves = bool(self.op.halves)
        for row in PUBLIC:
            if (row.family, row.operands, bool(row.halves)) == (self.op.family, operands, halves):
                return row
        return None

    @property
    def numbers(self) -> dict[str, float]:
        """The arguments that are numbers, by name."""
        return (dict(self.formula.numbers) if self.formula else {}) | self.options

    @property
    def place(self) -> tuple[int, ...]:
        """Where the elements are in a whole tensor, which decides their random bits."""
        return tuple(self.options.get(name, 0) for name in ("offset", "row_length", "row_stride"))

    def __call__(self, *tensors: Tensor, gate: str = GATES[0]) -> Results:
        return as_tuple(self.function(gate)(*tensors))

    def through_torch(self, *tensors: Tensor, gate: str = GATES[0]) -> Results:
        return as_tuple(self.operator(gate)(*tensors))

    def function(self, gate: str = GATES[0]) -> Callable[..., Tensor | Results]:
        """A function of the tensors, by the fastest route a user has."""
        if not isinstance(self.op, PublicOperator):
            return self.operator(gate)
        if gate in GATES:
            return function_of(self.op, gate) or self.operator(gate)
        function = function_of(self.op, GATES[0])
        selectors = {"gate", "approximate"} & {*function.keywords}
        return partial(function, **dict.fromkeys(selectors, gate))

    def operator(self, gate: str = GATES[0]) -> Callable[..., Tensor | Results]:
        """A function of the tensors, through torch.ops."""
        op = getattr(torch.ops.gelu_kernels, self.op.name)
        marks = [object() for _ in self.tensors]
        arguments, keywords = self.arguments(*marks, gate=gate)
        # The place of a tensor, or a constant: a compiler can trace this.
        template = [(marks.index(a), None) if a in marks else (None, a) for a in arguments]
        named = {name: marks.index(k) for name, k in keywords.items() if k in marks}
        options = {name: k for name, k in keywords.items() if name not in named}
        return lambda *tensors: op(
            *[constant if i is None else tensors[i] for i, constant in template],
            **{name: tensors[i] for name, i in named.items()},
            **options,
        )

    def arguments(self, *tensors: object, gate: str = GATES[0]) -> tuple[tuple, dict[str, object]]:
        """The arguments of the schema."""
        keyword = getattr(self.op, "selector", "gate")
        given = dict(zip(self.tensors, tensors, strict=True)) | self.numbers
        given |= self.selected(keyword, gate) if self.takes_gate else {}
        arguments = self.op.overload._schema.arguments
        positional = [a for a in arguments if not a.kwarg_only]
        while positional[-1].has_default_value() and positional[-1].name not in given:
            positional.pop()
        values = [given.get(a.name, a.default_value) for a in positional]
        named = {a.name: given[a.name] for a in arguments if a.kwarg_only and a.name in given}
        return tuple(values), named

    @staticmethod
    def selected(keyword: str, gate: str) -> dict[str, str]:
        """The gate may be unknown, in the tests of errors."""
        by_gate = APPROXIMATE if keyword == "approximate" and gate in GATES else {}
        return {keyword: by_gate[gate] if by_gate else gate}

    def inputs(self, y: Shape, make: Make) -> list[Tensor]:
        """Tensors for a result of shape y."""
        return [self.input(name, y, make) for name in self.tensors]

    def input(self, name: str, y: Shape, make: Make) -> Tensor:
        extent = self.tensors[name]
        shape = extent.shape(y)
        if extent is Extent.SCALAR:
            return torch.full((), SEED, device=make(1).device)
        if extent is Extent.BITS:
            # Drawn on the CPU: the same on every device.
            return torch.randint(256, shape, dtype=torch.uint8).to(make(1).device)
        if extent in IN_ROW_MAJOR_ORDER:
            bits = IN_ROW_MAJOR_ORDER[extent]
            codes = np.random.default_rng(SEED).integers(coded_oracle.NAN[bits], size=y)
            return coded_oracle.pack(codes, bits).to(make(1).device, copy=True)
        made = make(*(shape or (1,)))  # not every `make` can make a 0-d tensor
        if shape and name != "scale":
            return made
        own = positive(made.detach()) if name == "scale" else made.detach()
        return own.view(shape).requires_grad_(made.requires_grad)

    def sample(self, y: Shape, make: Make = normal, gate: str = GATES[0]) -> "Sample":
        return Sample(self, gate, self.inputs(y, make))


@dataclass
class Sample:
    """A call with its gate and tensors. ``ours`` and ``expected`` are functions of the floating
    tensors; all other arguments, including an SOI map's mask, are the sample's.
    """

    call: Call
    gate: str
    tensors: list[Tensor]
    draws_before: int = 0  # draws from the generator by earlier calls

    def named(self, *floating: Tensor) -> dict[str, Tensor]:
        found = dict(zip(self.call.tensors, self.tensors, strict=True))
        return found | dict(zip(self.call.floating, floating, strict=bool(floating)))

    @property
    def floating(self) -> tuple[Tensor, ...]:
        named = self.named()
        return tuple(named[name] for name in self.call.floating)

    def leaves(self, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Copies of the floating tensors, with gradients."""
        return tuple(
            t.detach().to(dtype or t.dtype, copy=True).requires_grad_() for t in self.floating
        )

    def ours(self, *floating: Tensor) -> Results:
        return self.ours_of_all(*self.named(*floating).values())

    def ours_of_all(self, *tensors: Tensor) -> Results:
        """Takes the other tensors as well."""
        if self.call.is_random:
            torch.manual_seed(SEED)
        return self.call(*tensors, gate=self.gate)

    def expected(self, *floating: Tensor) -> Results:
        """In float64, differentiable to any order."""
        doubles = (t.double() for t in floating or self.floating)
        t = self.named(*doubles)
        outputs = self.call.op.outputs
        if self.call.op.family == "coded":
            return self._coded(t)
        if self.call.formula is None:
            dx = soi_oracle.select(self._bits, t["dy"])
            leading = tuple(range(dx.dim() - 1))
            return tuple(dx if n == "dx" else dx.sum(leading) if leading else dx for n in outputs)
        operands = [t[name] for name in self.call.formula.operands]
        if "dy" not in t:
            y = self._value(*operands)
            return tuple(self._mask if name == "mask" else y for name in outputs)

        def gradients(*operands: Tensor) -> dict[str, Tensor]:
            found = vjp(self._value, *operands)[1](t["dy"])
            return {f"d{n}": g for n, g in zip(self.call.formula.operands, found, strict=True)}

        if "ddx" in t:
            x, *others = operands
            return vjp(lambda x: gradients(x, *others)["dx"], x)[1](t["ddx"])
        found = gradients(*operands)
        return tuple(found[name] for name in outputs)

    def _coded(self, t: dict[str, Tensor]) -> Results:
        """The result is linear in x: its slope is the constant that the code stands for."""
        p, bits = self.call.options.get("p", 0.0), self.call.options["bits"]
        like = t[self.call.leading]

        def constant(numbers: np.ndarray) -> Tensor:
            return torch.from_numpy(numbers).to(like.device).view(like.shape)

        codes = self._codes
        derivative = constant(coded_oracle.decoded(codes, bits) / (1 - p))
        if "dy" in t:
            dx = t["dy"] * derivative
            leading = tuple(range(dx.dim() - 1))
            sums = dx.sum(leading) if leading else dx
            return tuple(dx if n == "dx" else sums for n in self.call.op.outputs)
        total = t["x"] + t["bias"] if "bias" in t else t["x"]
        kept = constant(self._kept_by_dropout / (1 - p))
        value = getattr(reference, self.gate)(total.detach()) * kept
        y = value + derivative * (total - total.detach())
        return y, coded_oracle.pack(codes, bits).to(like.device)

    @cached_property
    def _kept_by_dropout(self) -> np.ndarray:
        t, p = self.named(), self.call.options.get("p", 0.0)
        shape = (t["x"].numel(),)
        if not p:
            return np.ones(shape, bool)
        return soi_oracle.not_dropped(shape, int(t["seed"]), p, *self.call.place).numpy()

    @cached_property
    def _codes(self) -> np.ndarray:
        t, options = self.named(), self.call.options
        bits = options["bits"]
        if "code" in t:
            return coded_oracle.unpack(t["code"], t["dy"].numel(), bits)
        seed = int(t["seed"]) if options.get("dither") else None
        x, bias = (t[n].detach().contiguous() if n in t else None for n in ("x", "bias"))
        _, ours = torch.ops.gelu_kernels.coded_forward(x, bias, t.get("seed"), self.gate, **options)
        codes = coded_oracle.codes(x, bias, self.gate, bits, seed, ours, *self.call.place)
        return np.where(self._kept_by_dropout, codes, coded_oracle.ZERO[bits])

    @property
    def _value(self) -> Callable[..., Tensor]:
        """A function of the operands: with a mask linear, its gradients of loc and scale zero."""
        if self.call.op.family != "soi":
            gate, distribution = getattr(reference, self.gate), reference.DISTRIBUTIONS[self.gate]
            return formula_of(self.call.formula, gate, distribution, self._dropout, reference.clamp)
        select = partial(soi_oracle.select, self._kept)
        if "loc" in self.call.tensors:
            return lambda x, loc, scale: select(x) + 0 * loc + 0 * scale
        return formula_of(self.call.formula, select, select)

    def _dropout(self, y: Tensor, p: float) -> Tensor:
        return soi_oracle.select(self._kept, y) / (1 - p)

    @cached_property
    def _kept(self) -> Tensor:
        """The mask."""
        t = self.named()
        if "mask" in t:
            return self._bits
        seed = self._drawn_seed() if self.call.is_random else int(t["seed"])
        place = self.call.place
        if self.call.op.family == "dropout":
            shape = t["x"].shape
            if self.call.op.halves:
                shape = (*shape[:-1], shape[-1] // 2)
            m = soi_oracle.not_dropped(shape, seed, self.call.numbers["p"], *place)
            return m.to(t["x"].device)
        parameters = {name: t[name] for name in ("loc", "scale") if name in t}
        m = soi_oracle.kept(t["x"], t.get("bias"), seed, self.gate, *place, **parameters)
        return m.to(t["x"].device)

    @cached_property
    def _mask(self) -> Tensor:
        return soi_oracle.pack(self._kept).to(self._kept.device)

    def _drawn_seed(self) -> int:
        """The seed that a random operator draws after manual_seed(SEED)."""
        device = self.tensors[0].device
        generator = torch.Generator(device).manual_seed(SEED)
        for _ in range(self.draws_before + 1):
            seed = torch.empty((), dtype=torch.int64, device=device)
            seed.random_(2**63 - 1, generator=generator)
        return int(seed)

    @cached_property
    def _bits(self) -> Tensor:
        t = self.named()
        with torch._C._DisableFuncTorch():  # else a transform of torch.func wraps the mask
            bits = torch.from_numpy(soi_oracle.unpack(t["mask"], t["dy"].numel()))
        return bits.view(t["dy"].shape).bool().to(t["dy"].device)


def _calls_of(op: Operator) -> Iterator[Call]:
    if isinstance(op, PublicOperator):
        tensors = {name: op.inputs[name] for name in op.operands}
        yield Call(op, tensors, f"{op.name} ({op.label})")
        return
    arguments = op.overload._schema.arguments
    optional = [a.name for a in arguments if str(a.type) == "Optional[Tensor]"]
    if "loc" in op.inputs:
        as_numbers = replace(op, single=("loc", "dloc", "scale", "dscale"))
        yield Call(op, op.inputs, op.name)
        yield Call(as_numbers, as_numbers.inputs, f"{op.name} (numbers)")
        return
    if op.family == "coded":
        yield from _coded_calls_of(op)
        return
    for choice in product(*[[False, True]] * len(optional)):
        given = [name for name, chosen in zip(optional, choice, strict=True) if chosen]
        tensors = {n: e for n, e in op.inputs.items() if n not in optional or n in given}
        yield Call(op, tensors, ", ".join([op.name, *given]))


def _coded_calls_of(op: CoreOperator) -> Iterator[Call]:
    """8 bits without options, and 4 bits with all of them."""
    alone = {n: e for n, e in op.inputs.items() if n not in ("bias", "seed")}
    yield Call(op, alone, op.name, {"bits": 8})
    options: dict[str, object] = {"bits": 4, "p": 0.25}
    if "seed" in op.inputs:
        options["dither"] = True
    in_4_bits = replace(op, nibbles=("code",))
    yield Call(in_4_bits, in_4_bits.inputs, f"{op.name} (4 bits)", options)


CORE_CALLS = [call for op in CORE for call in _calls_of(op)]
PUBLIC_CALLS = [call for op in PUBLIC for call in _calls_of(op)]
CALLS = CORE_CALLS + PUBLIC_CALLS


def call_of(op: CoreOperator | PublicOperator) -> Call:
    return next(call for call in CALLS if call.op == op)
