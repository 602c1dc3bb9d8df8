"""The methods of a class in which activations occur, and the patterns in them."""

import ast
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType

from torch.nn import Module

from gelu_kernels.replace.activations import called_by, is_one_of, names_in
from gelu_kernels.replace.dataflow import DataFlow
from gelu_kernels.replace.options import Found, Options
from gelu_kernels.replace.patterns import Pattern, Search
from gelu_kernels.replace.source import Definition, Sources


@dataclass
class Method:
    function: FunctionType
    definition: Definition
    patterns: list[Pattern]


class Reader:
    """Of methods, each once."""

    def __init__(self) -> None:
        self._sources = Sources()
        self._read: dict[FunctionType, tuple[Definition, DataFlow] | None] = {}
        self._called: dict[tuple[FunctionType, tuple[str, ...]], str] = {}

    def search(
        self,
        cls: type[Module],
        is_kind: Callable[[str, str], bool],
        gates: Collection[str],
        options: Options,
    ) -> tuple[dict[str, Method], Found]:
        """The methods with patterns, of a class whose attributes ``gates`` are activations."""
        methods, result = {}, Found()
        for name, member in members_of(cls).items():
            inner = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
            used = names_in(inner.__code__) if isinstance(inner, FunctionType) else set()
            held = used & {*gates}
            called = self._called_by(inner, options.names)
            if not held and not called and not used & {"sigmoid", "erf"}:
                continue
            if read := self._definition(cls, member):
                definition, flow = read
                search = Search(flow, is_kind, options)
                if search.found:
                    methods[name] = Method(member, definition, search.found)
                    result.operators[name] = tuple(map(str, search.found))
                result.not_fused |= search.not_fused
                result.not_recomputed |= search.not_recomputed
                called, why = uncovered(definition, search.found, options.names), ""
            else:
                why = f"{name} is no plain method, or no source is found that is the code that runs"
                result.not_fused |= dict.fromkeys(held, why)
                result.not_recomputed |= dict.fromkeys(held, why)
                why = f", and {why}"
            if called and called not in gates:
                result.left_alone[name] = f"it calls {called} itself{why}"
            elif read and search.computes_a_gate:
                result.left_alone[name] = "it computes a gate that is not known"
        patterns = [pattern for method in methods.values() for pattern in method.patterns]
        for gate in {*gates} - {pattern.gate for pattern in patterns}:
            if options.fuse_bias and is_kind(gate, "gelu"):
                result.not_fused.setdefault(gate, "no Linear is seen to come before it")
            if options.recompute:
                result.not_recomputed.setdefault(gate, "no Linear is seen to come after it")
        return methods, result

    def _called_by(self, function: FunctionType, names: tuple[str, ...]) -> str:
        if (function, names) not in self._called:
            self._called[function, names] = called_by(function, names)
        return self._called[function, names]

    def _definition(self, cls: type[Module], member: object) -> tuple[Definition, DataFlow] | None:
        if not isinstance(member, FunctionType) or looks_up_by_itself(cls):
            return None
        if member not in self._read:
            found = self._sources.definition(member)
            self._read[member] = found and (found, DataFlow(found.function, found.node))
        return self._read[member]


def members_of(cls: type[Module]) -> dict[str, object]:
    """Methods and properties of a class, without ``torch.nn.Module``'s."""
    found: dict[str, object] = {}
    for base in cls.__mro__[::-1]:
        for name, member in vars(base).items() if base not in (object, Module) else ():
            found.pop(name, None)
            is_special = name.startswith("__") and name.endswith("__") and name != "__call__"
            kinds = FunctionType | property | staticmethod | classmethod
            if isinstance(member, kinds) and not is_special:
                found[name] = member
    return found


def looks_up_by_itself(cls: type[Module]) -> bool:
    """Whether ``self.name`` may be another thing than what the module holds by that name."""
    own = cls.__getattribute__, getattr(cls, "__getattr__", None)
    return own != (object.__getattribute__, Module.__getattr__)


def uncovered(definition: Definition, patterns: list[Pattern], names: tuple[str, ...]) -> str:
    """A function of such a name, or one that calls it, which is called outside of the patterns."""
    covered = {id(value.node) for pattern in patterns for value in pattern.values}
    arguments = definition.node.args
    receiver = next((a.arg for a in [*arguments.posonlyargs, *arguments.args]), "")
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Call) and id(node) not in covered:
            name = _called(node.func, receiver)
            function = definition.function.__globals__.get(name)
            if is_one_of(names, name) or called_by(function, names):
                return name
    return ""


def _called(function: ast.expr, receiver: str) -> str:
    if isinstance(function, ast.Attribute):
        is_own = isinstance(function.value, ast.Name) and function.value.id == receiver
        return "" if is_own else function.attr
    if isinstance(function, ast.Subscript):
        return _called(function.value, receiver)
    return function.id if isinstance(function, ast.Name) else ""
