"""Which attributes of a module follow one another, as the source of its class shows it."""

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
    try:
        methods = list(_methods(cls))
    except (OSError, SyntaxError, TypeError):
        return {}
    for method in methods:
        receiver = next((a.arg for a in [*method.args.posonlyargs, *method.args.args]), "")
        assigned = _assigned_just_before(method)
        for node in ast.walk(method):
            uses[_attribute(node, receiver)] += 1
            if isinstance(node, ast.Attribute) and node.attr in ("weight", "bias"):
                uses[_attribute(node.value, receiver)] -= 1
            if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
                argument = assigned.get(node.args[0], node.args[0])
                outer = _attribute(node.func, receiver)
                inner = isinstance(argument, ast.Call) and _attribute(argument.func, receiver)
                if outer and inner:
                    found[outer] = inner
    return {outer: inner for outer, inner in found.items() if uses[outer] == 1 and uses[inner] == 1}


def _methods(cls: type[nn.Module]) -> Iterator[ast.FunctionDef]:
    members = [m for base in cls.__mro__ if base is not nn.Module for m in vars(base).values()]
    unwrapped = [inspect.unwrap(getattr(member, "fget", member)) for member in members]
    for function in {f for f in unwrapped if inspect.isfunction(f) and f.__name__ != "__init__"}:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise TypeError(f"{function} is not a def")
        yield tree


def _attribute(node: ast.AST, receiver: str) -> str:
    """The name in ``self.name``, where it is read; else nothing."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == receiver
    ):
        return node.attr
    return ""


def _assigned_just_before(method: ast.FunctionDef) -> dict[ast.expr, ast.expr]:
    """What a name stands for, where one statement binds it and the next is the last to read it."""
    values = {}
    for node in ast.walk(method):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            for first, second in pairwise(statements if isinstance(statements, list) else ()):
                if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
                    name = first.targets[0].id
                    reads = [read for read in ast.walk(second) if _reads(read, name)]
                    if len(first.targets) == len(reads) == 1 and _ends(second, name):
                        values[reads[0]] = first.value
    return values


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _ends(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
    return isinstance(statement, ast.Return)
