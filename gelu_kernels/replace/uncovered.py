"""Everywhere a method computes gates or reads functions, covered by a pattern or not."""

import ast
from collections import ChainMap
from collections.abc import Iterator, Mapping
from types import ModuleType

from gelu_kernels.replace.dataflow import DataFlow
from gelu_kernels.replace.describe import is_ours
from gelu_kernels.replace.occurrences import called_by, codes_in, given_to, holds_gate, is_one_of
from gelu_kernels.replace.source import Definition


def calls_of_gates(
    definition: Definition, flow: DataFlow, names: tuple[str, ...]
) -> Iterator[tuple[ast.expr, str]]:
    """Calls of functions named like a gate, or that call one, and the name; ours excluded."""
    function = definition.function
    known = ChainMap(given_to(function), function.__globals__)
    codes = codes_in(function.__code__)
    bound = {name for code in codes for name in code.co_varnames + code.co_cellvars}
    aliases = _aliases(definition.node)
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Call) and not is_ours(_value(node.func, known, bound)):
            name = _looked_up(node) or _called(node.func, flow.receiver)
            name = aliases.get(name, name)
            values = known.get(name), known.get(_root(node.func))
            others = [value for value in values if not is_ours(value)]
            if is_one_of(names, name) or any(called_by(v, names) or holds_gate(v) for v in others):
                yield node, name


def _value(function: ast.expr, known: Mapping[str, object], bound: set[str]) -> object:
    """The value of a name or of an attribute of a module; None if not known, as of variables that
    the method binds."""
    if isinstance(function, ast.Name):
        return None if function.id in bound else known.get(function.id)
    if isinstance(function, ast.Attribute):
        base = _value(function.value, known, bound)
        return vars(base).get(function.attr) if isinstance(base, ModuleType) else None
    return None


def _aliases(definition: ast.FunctionDef) -> dict[str, str]:
    """Local variables, and the names that they alias."""
    aliases = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.ImportFrom):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
            aliases |= {node.targets[0].id: name} if name else {}
    return aliases


def _root(function: ast.expr) -> str:
    """The variable at the start of a chain of attributes and indices."""
    while isinstance(function, ast.Attribute | ast.Subscript):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def products_like_gates(definition: Definition, flow: DataFlow) -> Iterator[ast.AST]:
    """``x * sigmoid(x)``, also where the data flow does not follow."""
    for node in ast.walk(definition.node):
        a, b = _factors(node)
        if a and b and _are_alike(a, b, flow.receiver):
            yield node


def _factors(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    if isinstance(node, ast.AugAssign | ast.BinOp) and isinstance(node.op, ast.Mult):
        is_in_place = isinstance(node, ast.AugAssign)
        return (node.target, node.value) if is_in_place else (node.left, node.right)
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if is_method and node.func.attr in ("mul", "mul_") and len(node.args) == 1:
        return node.func.value, node.args[0]
    return None, None


def _are_alike(a: ast.expr, b: ast.expr, receiver: str) -> bool:
    """Whether one factor only calls sigmoid or erf, of a variable that is in both."""
    names = [{n.id for n in ast.walk(x) if isinstance(n, ast.Name)} - {receiver} for x in (a, b)]
    calls = [[n.func for n in ast.walk(x) if isinstance(n, ast.Call)] for x in (a, b)]
    # Not tanh, which caps logits: tanh(x / cap) * cap.
    is_alike = any(c and all(_called(f, "") in ("sigmoid", "erf") for f in c) for c in calls)
    return is_alike and not names[0].isdisjoint(names[1])


def attributes_but(definition: Definition, calls: set[ast.expr]) -> set[str]:
    """The names of attributes that are read other than to be called in these calls."""
    called = {call.func for call in calls if isinstance(call, ast.Call)}
    nodes = ast.walk(definition.node)
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and n not in called}


def _called(function: ast.expr, receiver: str) -> str:
    if isinstance(function, ast.Attribute):
        is_own = isinstance(function.value, ast.Name) and function.value.id == receiver
        return "" if is_own else function.attr
    if isinstance(function, ast.Subscript):
        return _called(function.value, receiver)
    return function.id if isinstance(function, ast.Name) else ""


def _looked_up(call: ast.Call) -> str:
    """The name that a call passes to ``getattr``; empty for other calls."""
    is_getattr = isinstance(call.func, ast.Name) and call.func.id == "getattr"
    name = call.args[1] if is_getattr and len(call.args) > 1 else None
    return str(name.value) if isinstance(name, ast.Constant) else ""
