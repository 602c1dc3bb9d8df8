"""Where gates occur in the methods of a module, found apart from ``gelu_kernels.replace``: by names
and arithmetic in the source, and by what a forward pass dispatches."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = re.compile("gelu|silu|swish", re.IGNORECASE)
_CURVES = ("sigmoid", "erf", "tanh")
_PACKAGES = ("transformers.models", "timm")
_INPUT_SHAPES = ((2, 3), (2,), (2, 3, 3))


def methods(cls: type[nn.Module]) -> dict[str, FunctionType]:
    """Its own and inherited ones, the packages' base classes left out."""
    found: dict[str, FunctionType] = {}
    for base in cls.__mro__[::-1]:
        if base.__module__.startswith(_PACKAGES):
            members = {name: inspect.unwrap(member) for name, member in vars(base).items()}
            found |= {k: v for k, v in members.items() if isinstance(v, FunctionType)}
    return {name: method for name, method in found.items() if not name.startswith("__")}


def may_hold(cls: type[nn.Module]) -> bool:
    """Whether an activation may occur, by the names in its source."""
    own = [base for base in cls.__mro__ if base.__module__.startswith(_PACKAGES)]
    text = "".join(_classes_in(base.__module__).get(base.__name__, "") for base in own)
    return bool(re.search(r"gelu|silu|swish|ACT2FN|\bact|sigmoid|erf\(|tanh", text, re.IGNORECASE))


@cache
def _classes_in(module: str) -> dict[str, str]:
    """The texts of the classes of a module, which ``inspect`` would parse once for each."""
    text = inspect.getsource(sys.modules[module])
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    lines = text.splitlines(keepends=True)
    return {n.name: "".join(lines[n.lineno - 1 : n.end_lineno]) for n in nodes}


def in_source(method: FunctionType) -> list[str]:
    """Calls by name, products of a curve with its own argument, and helpers that have such."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    return [*_of(tree, method.__globals__, {method})]


def _of(tree: ast.AST, names: dict[str, object], seen: set[FunctionType]) -> Iterator[str]:
    assigned = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            own = called.startswith("self.")
            helper = names.get(called)
            if isinstance(helper, FunctionType) and helper.__module__.startswith(_PACKAGES):
                if helper not in seen:
                    seen.add(helper)
                    inner = ast.parse(textwrap.dedent(inspect.getsource(helper)))
                    found = [*_of(inner, helper.__globals__, seen)]
                    yield from [f"{called}: {what}" for what in found[:1]]
            elif not own and NAMES.search(called.rpartition(".")[2]):
                yield called
            elif called.startswith("ACT2FN"):
                yield "ACT2FN"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from _curve_product(node, assigned)


def _curve_product(node: ast.BinOp, assigned: dict[str, ast.expr]) -> Iterator[str]:
    """``x * sigmoid(...x...)``, ``x * (1 + erf(...x...))``, whatever scales them."""
    sides = [node.left, node.right]
    for one, other in (sides, sides[::-1]):
        curve = assigned.get(one.id, one) if isinstance(one, ast.Name) else one
        for call, name in _curves(curve):
            shared = _variables(call) & _variables(other)
            scaled = not _calls_child(call) and not [*_curves(other)]
            if shared and scaled and (name == "sigmoid" or _adds(curve)):
                yield f"{ast.unparse(other)} * {name}(...)"
                return


def _curves(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in _CURVES:
                yield node, name


def _variables(tree: ast.AST) -> set[str]:
    """The tensors in it, without the ones whose dtype is all that is read."""
    if isinstance(tree, ast.Attribute) and tree.attr in ("dtype", "device", "shape"):
        return set()
    if isinstance(tree, ast.Name):
        return {tree.id} - {"torch", "math", "F", "nn", "self"}
    return {name for child in ast.iter_child_nodes(tree) for name in _variables(child)}


def _calls_child(tree: ast.AST) -> bool:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(ast.unparse(call.func).startswith("self.") for call in calls)


def _adds(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Add) for node in ast.walk(tree))


class Gates(TorchDispatchMode):
    """Counts what torch computes of GELU and SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        name = function._schema.name.removeprefix("aten::").rstrip("_")
        if name in ("gelu", "silu"):
            self.seen.append(name)
        return function(*args, **kwargs or {})


def dispatched(module: nn.Module) -> list[str] | None:
    """What a forward pass of an input guessed from its first layer computes; None where none
    runs."""
    layer = next((m for m in module.modules() if isinstance(m, nn.Linear)), None)
    width = getattr(layer, "in_features", 16)
    for shape in _INPUT_SHAPES:
        with Gates() as gates, torch.no_grad():
            try:
                module(torch.empty(*shape, width, device="meta"))
            except KeyboardInterrupt:
                raise
            except BaseException:  # transformers' missing packages are no Exception
                continue
        return gates.seen
    return None
