"""What one module hands to the next, as the sources of their classes show it.

BERT's layer, for example, computes ``self.output(self.intermediate(x), x)``, where ``intermediate``
returns what its activation returns, and all that ``output`` does with it is ``self.dense(...)``.
"""

import ast
from collections import Counter
from functools import cache

from torch import nn

from gelu_kernels.replace.compositions import assigned_just_before, attribute, methods


@cache
def returned(cls: type[nn.Module]) -> str:
    """The attribute whose result ``forward`` returns, and which it uses for nothing else."""
    found = _forward(cls)
    if found is None:
        return ""
    forward, receiver = found
    returns = [node for node in ast.walk(forward) if isinstance(node, ast.Return)]
    if len(returns) != 1 or forward.body[-1] is not returns[0]:
        return ""
    value = returns[0].value
    value = assigned_just_before(forward).get(value, value)
    name = attribute(value.func, receiver) if isinstance(value, ast.Call) else ""
    return name if _uses(cls)[name] == 1 else ""


@cache
def taken(cls: type[nn.Module]) -> str:
    """The attribute that alone takes the first argument of ``forward``."""
    found = _forward(cls)
    if found is None or len(found[0].args.args) < 2 or not found[0].body:
        return ""
    forward, receiver = found
    name, first = forward.args.args[1].arg, forward.body[0]
    reads = [n for n in ast.walk(forward) if _reads(n, name)]
    reads_of_first = [n for n in ast.walk(first) if _reads(n, name)]
    is_rebound = isinstance(first, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == name for target in first.targets
    )
    if len(reads_of_first) != 1 or not (is_rebound or len(reads) == 1):
        return ""
    for node in ast.walk(first):
        if isinstance(node, ast.Call) and node.args == reads_of_first and not node.keywords:
            taker = attribute(node.func, receiver)
            return taker if _uses(cls)[taker] == 1 else ""
    return ""


@cache
def handed_over(cls: type[nn.Module]) -> dict[str, str]:
    """``{"first": "second"}`` for each ``self.second(self.first(...), ...)`` in the methods of
    ``cls``, which use neither elsewhere. A name that nothing else reads may stand between."""
    found: dict[str, str] = {}
    for method, receiver in methods(cls):
        assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(method)
            if isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        }
        uses_of_name = Counter(node.id for node in ast.walk(method) if isinstance(node, ast.Name))
        for node in ast.walk(method):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            value = node.args[0]
            if isinstance(value, ast.Name) and uses_of_name[value.id] == 2:  # bound, and read
                value = assigned.get(value.id)
            if isinstance(value, ast.Call):
                first, second = attribute(value.func, receiver), attribute(node.func, receiver)
                if first and second and _uses(cls)[first] == _uses(cls)[second] == 1:
                    found[first] = second
    return found


@cache
def _uses(cls: type[nn.Module]) -> Counter[str]:
    return Counter(
        attribute(node, receiver) for method, receiver in methods(cls) for node in ast.walk(method)
    )


def _forward(cls: type[nn.Module]) -> tuple[ast.FunctionDef, str] | None:
    found = [(m, receiver) for m, receiver in methods(cls) if m.name == "forward"]
    return found[0] if len(found) == 1 else None


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
