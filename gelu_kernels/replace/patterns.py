"""The patterns that one operator computes: gated linear units, and gates with the linear layer
before or after them."""

import ast
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from gelu_kernels.replace import reasons
from gelu_kernels.replace.dataflow import DataFlow, Value
from gelu_kernels.replace.options import Options
from gelu_kernels.replace.parts import Gate, Parts, both_ways, call, is_call, operands

# These do not write to their inputs, unless a keyword says so.
_FUNCTIONS = (
    F.linear, F.gelu, F.sigmoid, F.softmax, F.layer_norm, torch.sigmoid, torch.tanh, torch.erf,
    torch.exp, torch.softmax, torch.matmul, torch.bmm, torch.cat, torch.chunk, torch.split,
    torch.unbind, torch.clamp, torch.mul, torch.add, torch.sub, torch.div, torch.reshape,
    torch.transpose, torch.permute, torch.flatten, torch.einsum,
)  # fmt: skip
_VIEWS = {
    "chunk", "split", "unbind", "unflatten", "flatten", "view", "reshape", "transpose", "permute",
    "t", "contiguous", "squeeze", "unsqueeze", "expand", "narrow",
}  # fmt: skip
_METHODS = {
    *_VIEWS, "to", "float", "half", "bfloat16", "type_as", "clamp", "clip", "sigmoid", "tanh",
    "mul", "add", "sub", "div", "matmul", "size", "dim", "sum", "mean", "softmax", "clone",
    "detach",
}  # fmt: skip
GATE_LIKE = ("sigmoid", "erf", "tanh", "ndtr", "expit")  # functions in the formulas of gates
_PURE = {"constant", "global", "variable", "receiver", "mul", "add", "neg", "read"}


@dataclass
class Pattern:
    """``values`` are its values, each with the expression that replaces it."""

    operator: str  # a function of fused.py
    gate: str
    linear: str  # empty if there is none
    values: dict[Value, ast.expr]
    needs: set[tuple[str, str]]  # attributes of the module and their kinds

    def __str__(self) -> str:
        linear_first = self.operator == "bias_gelu"
        names = (self.linear, self.gate) if linear_first else (self.gate, self.linear)
        return f"{self.operator}({', '.join(filter(None, names))})"


@dataclass
class _Unit:
    """A gated linear unit."""

    gate: Gate
    factors: list[ast.expr]
    steps: dict[Value, ast.expr]  # its values except the product, each with the operand it replaces
    keywords: dict[str, ast.expr]

    def steps_with(self, product: Value) -> dict[Value, ast.expr]:
        """The steps, with the pair of factors in place of their product."""
        return {**self.steps, product: ast.Tuple(self.factors, ast.Load())}


class Search:
    """The patterns of one data flow.

    Attributes:
        found: patterns; no two of them share a value.
        not_fused, not_recomputed: the reasons for the other activations.
        computes_a_gate: whether there is arithmetic like that of a gate, but of no known one.
    """

    def __init__(
        self, flow: DataFlow, is_kind: Callable[[str, str], bool], options: Options
    ) -> None:
        self._flow = flow
        self._parts = Parts(flow, is_kind)
        self._names = options.names
        self.found: list[Pattern] = []
        self.not_fused: dict[str, str] = {}
        self.not_recomputed: dict[str, str] = {}
        self._taken: set[Value] = set()
        searches = {
            self._linear_of_gate: options.recompute,
            self._linear_of_unit: options.recompute and options.fuse_glu,
            self._weighted_product: options.fuse_glu,
            self._product: options.fuse_glu,
            self._gelu_of_linear: options.fuse_bias,
            self._alone: True,
        }
        for search in (search for search, is_asked_for in searches.items() if is_asked_for):
            for value in reversed(flow.values):
                self._parts.needs = set()
                pattern = search(value) if value not in self._taken else None
                if pattern and not self._taken & pattern.values.keys():
                    self._taken |= pattern.values.keys()
                    self.found.append(pattern)
        self.computes_a_gate = any(map(self._is_like_a_gate, flow.values))
        fused = {pattern.gate for pattern in self.found if pattern.operator != "gate"}
        self.not_fused = {gate: why for gate, why in self.not_fused.items() if gate not in fused}
        if options.recompute:
            gates = {gate.name for gate in map(self._parts.gate, flow.values) if gate}
            gates -= {p.gate for p in self.found if p.operator in ("gate_linear", "glu_linear")}
            self.not_recomputed = dict.fromkeys(gates, reasons.NO_LINEAR_AFTER)

    def _pattern(
        self,
        operator: str,
        gate: Gate,
        root: Value,
        expression: ast.expr,
        steps: dict[Value, ast.expr],
        linear: str = "",
    ) -> Pattern | None:
        """None if something between the first step and the root may change the result."""
        first = min(step.position for step in steps)
        for value in self._flow.values[first : root.position]:
            if value not in steps and not self._is_harmless(value):
                self.not_fused[gate.name] = reasons.may_write(operator)
                return None
        values = {**steps, root: expression}
        return Pattern(operator, gate.name, linear, values, self._parts.needs)

    def _is_harmless(self, value: Value) -> bool:
        if value.operation in ("child", "stored"):
            kinds = ("harmless", "gate") if value.operation == "child" else ("stored",)
            return any(self._parts.is_kind(value.target.split(".")[0], kind) for kind in kinds)
        if value.keywords.keys() & {"out", "inplace"}:
            return False
        if value.operation == "function":
            return any(value.target is function for function in _FUNCTIONS)
        if value.operation == "method":
            return value.target in _METHODS
        return value.operation in _PURE

    def _unit(self, product: Value) -> _Unit | None:
        for value, up, _ in both_ways(product, "mul"):
            gate = self._parts.gate(value) or self._parts.swish(value)
            if not gate or up in gate.steps:
                continue
            if not self._parts.is_only_for(value):
                self.not_fused[gate.name] = reasons.USED_ELSEWHERE
                continue
            steps, keywords = dict(gate.steps), {}
            if value is product.inputs[1]:
                keywords["gate_is_left"] = ast.Constant(False)
            offset, unshifted, shifts = self._parts.offset(up)
            limit, clamps = self._parts.limit(gate, unshifted)
            if limit:
                keywords["limit"] = limit
            if offset:
                keywords["up_offset"] = offset
            return _Unit(gate, operands(product), steps | clamps | shifts, keywords)
        return None

    def _product(self, value: Value) -> Pattern | None:
        unit = self._unit(value)
        if unit:
            expression = call("glu", [unit.gate.activation, *unit.factors], unit.keywords)
            return self._pattern("glu", unit.gate, value, expression, unit.steps)
        for factor in value.inputs if value.operation == "mul" else ():
            while factor.operation in ("method", "read") and factor.inputs:
                between, factor = factor.target or "something", factor.inputs[0]
                if gate := self._parts.gate(factor):
                    self.not_fused[gate.name] = reasons.stands_between(between, between in _VIEWS)
        return None

    def _weighted_product(self, value: Value) -> Pattern | None:
        """A unit times a factor, which may be one number for each row."""
        for product, weight, _ in both_ways(value, "mul"):
            unit = self._unit(product) if weight.operation != "constant" else None
            if unit and self._parts.is_only_for(product):
                keywords = dict(unit.keywords)
                if product is value.inputs[1]:
                    keywords["unit_is_left"] = ast.Constant(False)
                arguments = [unit.gate.activation, *operands(value)]
                expression = call("weighted_glu", arguments, keywords)
                steps = unit.steps_with(product)
                return self._pattern("weighted_glu", unit.gate, value, expression, steps)
        return None

    def _linear_of_unit(self, value: Value) -> Pattern | None:
        if not self._parts.call_of(value, "linear") or not self._parts.is_only_for(value.inputs[0]):
            return None
        (product,) = value.inputs
        unit = self._unit(product)
        if not unit:
            return None
        arguments = [unit.gate.activation, value.node.func, *value.node.args]
        expression = call("glu_linear", arguments, unit.keywords)
        steps = unit.steps_with(product)
        return self._pattern("glu_linear", unit.gate, value, expression, steps, value.target)

    def _linear_of_gate(self, value: Value) -> Pattern | None:
        if not self._parts.call_of(value, "linear", "conv1d"):
            return None
        gate = self._parts.gate(value.inputs[0])
        if not gate or not self._parts.is_only_for(value.inputs[0]):
            return None
        arguments = [gate.activation, value.node.func, *value.node.args]
        expression = call("gate_linear", arguments)
        return self._pattern("gate_linear", gate, value, expression, gate.steps, value.target)

    def _gelu_of_linear(self, value: Value) -> Pattern | None:
        gate = self._parts.gate(value, "gelu")
        if not gate:
            return None
        linear = gate.input
        if linear.operation != "child" or not self._parts.is_only_for(linear):
            return None
        if not self._parts.call_of(linear, "linear with bias"):
            why = reasons.not_plain_before(linear.target)
            self.not_fused.setdefault(gate.name, why)
        else:
            arguments = [gate.activation, *value.node.args]
            steps = {linear: call("product", [linear.node.func, *linear.node.args])}
            expression = call("bias_gelu", arguments)
            return self._pattern("bias_gelu", gate, value, expression, steps, linear.target)
        return None

    def _alone(self, value: Value) -> Pattern | None:
        """A function or arithmetic alone; a child module has a class of its own."""
        is_child = value.operation == "child"
        if is_child and not self._parts.is_kind(value.target, "function"):
            return None
        gate = self._parts.gate(value) or self._parts.swish(value)
        if not gate:
            return None
        is_gelu = self._parts.is_kind(gate.name, "gelu") if is_child else gate.name == "gelu"
        if ("gelu" if is_gelu else "silu") not in self._names:
            return None
        expression = call("gate", [gate.activation, gate.steps[value]])
        return self._pattern("gate", gate, value, expression, gate.steps)

    def _is_like_a_gate(self, product: Value) -> bool:
        """Whether it is ``x * sigmoid(...)``, or with erf or the like, and both depend on x."""
        if product in self._taken:
            return False
        for x, factor, _ in both_ways(product, "mul", methods=True):
            parts = self._parts_of(factor)
            # A tanh to which nothing is added caps logits: tanh(x / cap) * cap.
            added = [part for sum in parts if sum.operation == "add" for part in sum.inputs]
            curves = filter(self._is_sigmoid, parts)
            is_alike = any(part in added or not is_call(part, "tanh") for part in curves)
            if is_alike and parts & self._parts_of(x, with_children=True):
                return True
        return False

    def _is_sigmoid(self, value: Value) -> bool:
        return is_call(value, *GATE_LIKE) or self._parts.call_of(value, "sigmoid")

    def _parts_of(self, value: Value, with_children: bool = False) -> set[Value]:
        """The values it is computed from by arithmetic, functions and, if asked for, children."""
        parts, found = [value], set()
        for part in parts:
            is_made = isinstance(part.node, ast.BinOp | ast.UnaryOp) or part.operation == "function"
            is_made = is_made or (with_children and part.operation == "child")
            is_made = is_made or (part.operation == "method" and part.target in ("to", "float"))
            if is_made or self._is_sigmoid(part):
                parts += part.inputs
            if part.operation not in ("constant", "stored", "global"):
                found.add(part)
        return found
