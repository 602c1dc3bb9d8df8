"""The parts of a pattern in the data flow of a method: activations, clamps and offsets."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from gelu_kernels.replace.activations import SIGMOID_GATES
from gelu_kernels.replace.dataflow import DataFlow, Value
from gelu_kernels.replace.source import FUSED


@dataclass
class Gate:
    """An activation and its input."""

    name: str  # of the activation in the module
    activation: ast.expr
    input: Value
    steps: dict[Value, ast.expr]  # its values, each with its operand that comes from the input
    uses: int = 1  # how often it reads the input


@dataclass
class Bounds:
    """A clamp."""

    input: ast.expr
    least: Value | None
    largest: Value


class Parts:
    """The parts in one data flow.

    ``is_kind`` says whether an attribute of the module is of a kind (kinds.py). ``needs`` collects
    the attributes and kinds for which it was true.
    """

    def __init__(self, flow: DataFlow, is_kind: Callable[[str, str], bool]) -> None:
        self.flow = flow
        self._is_kind = is_kind
        self.needs: set[tuple[str, str]] = set()

    def is_kind(self, name: str, kind: str) -> bool:
        found = self._is_kind(name, kind)
        if found:
            self.needs.add((name, kind))
        return found

    def is_only_for(self, value: Value, uses: int = 1) -> bool:
        """Whether the value is used only that often, by the pattern, and nowhere else."""
        return value.node is not None and value.uses == uses and self.flow.is_gone(value)

    def call_of(self, value: Value, *kinds: str) -> bool:
        """Whether it is ``self.child(input)`` and the child is of one of the kinds."""
        is_call = value.operation == "child" and len(value.inputs) == 1 and not value.keywords
        return is_call and any(self.is_kind(value.target, kind) for kind in kinds)

    def gate(self, value: Value, kind: str = "gate") -> Gate | None:
        """``self.act(x)``, ``F.gelu(x)`` or ``F.silu(x)``"""
        if self.call_of(value, kind):
            name, activation = value.target, value.node.func
        elif is_function_of_torch(value) and not (kind == "gelu" and value.target is F.silu):
            name, activation = value.target.__name__, value.node.func
            if keywords := {k.arg: k.value for k in value.node.keywords}:
                activation = call("partial", [activation], keywords)
        else:
            return None
        return Gate(name, activation, value.inputs[0], {value: value.node.args[0]})

    def swish(self, value: Value) -> Gate | None:
        """``x * sigmoid(alpha * x)``"""
        for x, sigmoid, node in both_ways(value, "mul"):
            is_sigmoid = is_call(sigmoid, "sigmoid") and len(sigmoid.inputs) == 1
            if not is_sigmoid or sigmoid.keywords or not self.is_only_for(sigmoid):
                continue
            (scaled,) = sigmoid.inputs
            steps, alpha = {value: node, sigmoid: operands(sigmoid)[0]}, None
            if scaled is x:
                alpha = ast.Constant(1.0)
            for other, factor, node_of_x in both_ways(scaled, "mul"):
                if other is x and self.is_only_for(scaled):
                    alpha = self.number(factor, "1.702")
                    steps[scaled] = node_of_x
            is_known = not isinstance(alpha, ast.Constant) or alpha.value in SIGMOID_GATES
            if alpha and is_known:
                activation = call("partial", [attribute("swish")], {"alpha": alpha})
                return Gate("swish", activation, x, steps, uses=2)
        return None

    def number(self, value: Value, kind: str) -> ast.expr | None:
        """A constant, or an attribute of the module that holds a number of this kind."""
        is_stored = value.operation == "stored" and self.is_kind(value.target, kind)
        return value.node if is_stored or is_number(value) else None

    def limit(self, gate: Gate, up: Value) -> tuple[ast.expr | None, dict[Value, ast.expr]]:
        """The number that bounds the gate's input from above and the other factor on both sides,
        and the clamps."""
        x, y = bounds_of(gate.input), bounds_of(up)
        number = None
        if (
            x
            and y
            and not x.least
            and y.least
            and is_same(x.largest, y.largest)
            and is_minus(y.least, x.largest)
            and self.is_only_for(gate.input, gate.uses)
            and self.is_only_for(up)
        ):
            number = self.number(x.largest, "positive")
        return (number, {gate.input: x.input, up: y.input}) if number else (None, {})

    def offset(self, up: Value) -> tuple[ast.expr | None, Value, dict[Value, ast.expr]]:
        """The constant added to the second factor, the factor without it, and the sum."""
        for other, number, node in both_ways(up, "add"):
            if is_number(number) and self.is_only_for(up):
                return number.node, other, {up: node}
        return None, up, {}


def is_function_of_torch(value: Value) -> bool:
    """Whether it is an out-of-place call of ``F.gelu`` or ``F.silu``."""
    known = [v for v in value.keywords.values() if v.operation in ("constant", "stored")]
    in_place = value.keywords.get("inplace")
    return (
        value.operation == "function"
        and (value.target is F.gelu or value.target is F.silu)
        and len(value.inputs) == 1
        and len(known) == len(value.keywords)
        and not (in_place and in_place.target is not False)
    )


def bounds_of(value: Value) -> Bounds | None:
    if not is_call(value, "clamp", "clip") or not value.inputs:
        return None
    bounds = dict(zip(("min", "max"), value.inputs[1:], strict=False)) | value.keywords
    least, largest = bounds.get("min"), bounds.get("max")
    if least and least.operation == "constant" and least.target is None:
        least = None
    is_clamp = largest and bounds.keys() <= {"min", "max"} and len(value.inputs) <= 3
    return Bounds(operands(value)[0], least, largest) if is_clamp else None


def is_call(value: Value, *names: str) -> bool:
    """Whether it calls a tensor method of one of these names, or torch's function of that name."""
    if value.operation == "method":
        return value.target in names
    function = value.target if value.operation == "function" else None
    name = getattr(function, "__name__", "").removeprefix("special_")
    modules = torch, F, torch.special
    return name in names and any(function is vars(module).get(name) for module in modules)


def is_number(value: Value) -> bool:
    number = value.target if value.operation == "constant" else None
    return type(number) in (int, float) and abs(number) < float("inf")


def is_same(a: Value, b: Value) -> bool:
    known = ("constant", "stored")
    return a is b or (a.operation == b.operation and a.operation in known and a.target == b.target)


def is_minus(a: Value, b: Value) -> bool:
    return a.operation == "neg" and is_same(a.inputs[0], b)


def operands(value: Value) -> list[ast.expr]:
    """The expressions of its positional inputs."""
    node = value.node
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    return [node.func.value, *node.args] if value.operation == "method" else node.args


def both_ways(
    value: Value, operation: str, methods: bool = False
) -> Iterator[tuple[Value, Value, ast.expr]]:
    """For a binary operation, in both orders: one input, the other, and the first's expression.
    ``methods`` also admits method calls, whose object may not be a tensor."""
    is_called = is_call(value, operation) and not value.keywords
    is_called = is_called and (methods or value.operation == "function")
    nodes = operands(value) if value.operation == operation or is_called else []
    if len(nodes) == 2:
        a, b = value.inputs
        yield a, b, nodes[0]
        yield b, a, nodes[1]


def attribute(name: str) -> ast.Attribute:
    """A function of fused.py, as a fused method refers to it."""
    return ast.Attribute(ast.Name(FUSED, ast.Load()), name, ast.Load())


def call(
    name: str, arguments: list[ast.expr], keywords: dict[str, ast.expr] | None = None
) -> ast.Call:
    named = [ast.keyword(name, value) for name, value in (keywords or {}).items()]
    return ast.Call(attribute(name), arguments, named)
