"""How a module uses its attributes, as the source of its class shows it."""

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from torch import nn


@cache
def compositions(cls: type[nn.Module]) -> dict[str, str]:
    """``{"outer": "inner"}`` for each ``self.outer(self.inner(...))`` in the methods of ``cls``.

    Two statements may share it: ``h = self.inner(...)``, then ``h = self.outer(h)`` or ``return
    self.outer(h)``. The methods, inherited ones included and ``__init__`` aside, use neither
    attribute elsewhere, but for a weight or a bias, so that nothing else sees the inner one's
    result. Where a source cannot be read there are none.
    """
    found: dict[str, str] = {}
    uses: Counter[str] = Counter()
    for method, receiver in methods(cls):
        assigned = assigned_just_before(method)
        for node in ast.walk(method):
            uses[attribute(node, receiver)] += 1
            if isinstance(node, ast.Attribute) and node.attr in ("weight", "bias"):
                uses[attribute(node.value, receiver)] -= 1
            if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
                argument = assigned.get(node.args[0], node.args[0])
                outer = attribute(node.func, receiver)
                inner = isinstance(argument, ast.Call) and attribute(argument.func, receiver)
                if outer and inner:
                    found[outer] = inner
    return {outer: inner for outer, inner in found.items() if uses[outer] == 1 and uses[inner] == 1}


@cache
def factors(cls: type[nn.Module]) -> frozenset[str]:
    """The attributes whose every use in the methods of ``cls`` is ``self.attribute(...) * other``.

    Two statements may share it: ``h = self.attribute(...)``, where all that reads ``h`` is one
    product, and nothing from the one to the other writes into a tensor. Inherited methods count,
    ``__init__`` does not. Where a source cannot be read there are none.
    """
    uses: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for method, receiver in methods(cls):
        operands = [value for _, value in _operands(method)]
        for node in ast.walk(method):
            uses[attribute(node, receiver)] += 1
            if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
                products[attribute(node.func, receiver)] += node in operands
    return frozenset(name for name in uses if name and uses[name] == products[name])


@cache
def products(cls: type[nn.Module]) -> dict[str, str]:
    """``{"inner": "outer"}`` for each ``self.outer(self.inner(...) * other)`` in the methods of
    ``cls``, where :func:`factors` has ``inner``, and ``outer`` has no other use. Names may stand
    between as for :func:`compositions` and :func:`factors`."""
    found: dict[str, str] = {}
    uses: Counter[str] = Counter()
    for method, receiver in methods(cls):
        assigned = assigned_just_before(method)
        operands = list(_operands(method))
        for node in ast.walk(method):
            uses[attribute(node, receiver)] += 1
            if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
                argument = assigned.get(node.args[0], node.args[0])
                values = [value for product, value in operands if product is argument]
                calls = [value.func for value in values if isinstance(value, ast.Call)]
                for inner in filter(None, (attribute(call, receiver) for call in calls)):
                    found[inner] = attribute(node.func, receiver)
    return {i: o for i, o in found.items() if o and uses[o] == 1 and i in factors(cls)}


def _operands(method: ast.FunctionDef) -> Iterator[tuple[ast.BinOp, ast.expr]]:
    """Products, each with its operands; for a name that nothing else reads, the values assigned to
    it."""
    nodes = list(ast.walk(method))
    read = Counter(node.id for node in nodes if isinstance(node, ast.Name) and _is_read(node))
    assigned = [n for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1]
    written = [node.lineno for node in nodes if _writes(node)]
    for product in nodes:
        if not (isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)):
            continue
        for operand in (product.left, product.right):
            name = _name(operand)
            values = [a.value for a in assigned if name and _name(a.targets[0]) == name]
            for value in values if read[name] == 1 else [operand]:
                if not any(value.lineno <= line <= product.end_lineno for line in written):
                    yield product, value


def _writes(node: ast.AST) -> bool:
    """Whether it changes a tensor that is there: ``h += 1``, ``h[0] = 1``, ``h.add_(1)``."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", "")
        return name.endswith("_") or any(
            keyword.arg in ("out", "inplace") for keyword in node.keywords
        )
    return isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    )


@cache
def methods(cls: type[nn.Module]) -> tuple[tuple[ast.FunctionDef, str], ...]:
    """With the name of ``self`` in each; none if the source of one cannot be read."""
    members = [m for base in cls.__mro__ if base is not nn.Module for m in vars(base).values()]
    unwrapped = [inspect.unwrap(getattr(member, "fget", member)) for member in members]
    methods = []
    for function in {f for f in unwrapped if inspect.isfunction(f) and f.__name__ != "__init__"}:
        try:
            method = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError):
            return ()
        if not isinstance(method, ast.FunctionDef):
            return ()
        receiver = next((a.arg for a in [*method.args.posonlyargs, *method.args.args]), "")
        methods.append((method, receiver))
    return tuple(methods)


def attribute(node: ast.AST, receiver: str) -> str:
    """The name in ``self.name``, where it is read; else nothing."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == receiver
    ):
        return node.attr
    return ""


def assigned_just_before(method: ast.FunctionDef) -> dict[ast.expr, ast.expr]:
    """What a name stands for, where one statement binds it and the next is the last to read it."""
    values = {}
    for node in ast.walk(method):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            for first, second in pairwise(statements if isinstance(statements, list) else ()):
                if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
                    name = first.targets[0].id
                    named = [node for node in ast.walk(second) if _name(node) == name]
                    reads = [node for node in named if _is_read(node)]
                    if len(first.targets) == len(reads) == 1 and _ends(second, name):
                        values[reads[0]] = first.value
    return values


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _ends(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.Assign):
        return any(_name(target) == name for target in statement.targets)
    return isinstance(statement, ast.Return)
