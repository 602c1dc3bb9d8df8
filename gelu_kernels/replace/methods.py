"""The methods of a class that use activations, and the patterns in them."""

import ast
import dis
import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType

from torch.fx import GraphModule
from torch.nn import Module

from gelu_kernels.replace import reasons
from gelu_kernels.replace.activations import gate_of, name_of
from gelu_kernels.replace.dataflow import DataFlow
from gelu_kernels.replace.derived import is_made_here
from gelu_kernels.replace.occurrences import called_by, holds_gate, names_in, texts_in
from gelu_kernels.replace.options import Found, Options
from gelu_kernels.replace.patterns import GATE_LIKE, Pattern, Search
from gelu_kernels.replace.source import Definition, Sources
from gelu_kernels.replace.uncovered import attributes_but, calls_of_gates, products_like_gates

_SETTING = {dis.opmap["STORE_ATTR"], dis.opmap["DELETE_ATTR"]}
# These set an attribute by name.
_SETTERS = {"setattr", "add_module", "register_module", "register_parameter", "register_buffer"}


@dataclass
class Method:
    function: FunctionType
    definition: Definition
    patterns: list[Pattern]


@dataclass
class Reading:
    """A method's data flow, calls of gates with their names, and products that may be gates."""

    definition: Definition
    flow: DataFlow
    calls: list[tuple[ast.expr, str]]
    products: list[ast.AST]


class Members:
    """The members of a class.

    Attributes:
        functions: by name, each member with a function inside, the function, and the names it uses.
        set_by_methods: attributes that methods set, perhaps during a call.
        gates: by name, the gates of the activations that the class holds.
        are_readable: whether ``self.name`` in a method is the attribute that the module holds.
    """

    def __init__(self, cls: type[Module]) -> None:
        members = members_of(cls)
        inner = {name: function_in(member) for name, member in members.items()}
        self.functions = {
            name: (member, inner[name], names_in(inner[name].__code__))
            for name, member in members.items()
        }
        codes = [function.__code__ for function in inner.values()]
        instructions = [
            [*dis.get_instructions(code)]
            for code in codes
            if "super" in code.co_names or not _SETTING.isdisjoint(code.co_code[::2])
        ]
        self.set_by_methods = {
            i.argval for method in instructions for i in method if i.opcode in _SETTING
        }
        setting = [code for code in codes if _SETTERS & {*code.co_names}]
        self.set_by_methods |= {text for code in setting for text in texts_in(code)}
        self.gates = gates_of_class(cls)
        own = cls.__getattribute__, getattr(cls, "__getattr__", None)
        self.are_readable = (
            own == (object.__getattribute__, Module.__getattr__)
            and not issubclass(cls, GraphModule)
            and not any(map(means_its_class, instructions))
        )


class Reader:
    """Reads methods and classes, each once."""

    def __init__(self) -> None:
        self._members: dict[type[Module], Members] = {}
        self._sources = Sources()
        self._read: dict[tuple[FunctionType, tuple[str, ...]], Reading | None] = {}
        self._called: dict[tuple[FunctionType, tuple[str, ...]], str] = {}

    def search(
        self,
        cls: type[Module],
        is_kind: Callable[[str, str], bool],
        gates: Collection[str],
        options: Options,
        sigmoids: Collection[str] = (),
    ) -> tuple[dict[str, Method], Found]:
        """The methods with patterns, for a class whose attributes ``gates`` hold activations and
        ``sigmoids`` hold sigmoid modules, which may be part of one."""
        methods, result = {}, Found()
        if cls not in self._members:
            self._members[cls] = Members(cls)
        members = self._members[cls]

        def is_known(name: str, kind: str) -> bool:
            return name not in members.set_by_methods and is_kind(name, kind)

        functions = {
            gate
            for gate in gates
            if is_kind(gate, "function")
            and ("gelu" if is_kind(gate, "gelu") else "silu") in options.names
        }
        for name, (member, inner, used) in members.functions.items():
            held = used & {*gates}
            called = self._called_by(inner, options.names)
            if not held and not called and used.isdisjoint({*GATE_LIKE, *sigmoids}):
                continue
            is_own = "." not in name and members.are_readable
            if read := self._reading(member, options.names) if is_own else None:
                search = Search(read.flow, is_known, options)
                covered = {value.node for pattern in search.found for value in pattern.values}
                if search.found:
                    methods[name] = Method(member, read.definition, search.found)
                    result.operators[name] = tuple(map(str, search.found))
                result.not_fused |= search.not_fused
                result.not_recomputed |= search.not_recomputed
                calls = [called for node, called in read.calls if node not in covered]
                called, why = calls[0] if calls else "", ""
                others = attributes_but(read.definition, covered) & functions
                result.left_alone |= dict.fromkeys(others, reasons.not_only_called(name))
            else:
                why = reasons.unread(name)
                result.not_fused |= dict.fromkeys(held, reasons.not_fused(why))
                if options.recompute:
                    result.not_recomputed |= dict.fromkeys(held, reasons.not_recomputed(why))
                result.left_alone |= dict.fromkeys(held & functions, reasons.left_alone(why))
            if called and called not in gates:
                result.left_alone[name] = reasons.calls(called, why)
            elif read and (search.computes_a_gate or not covered.issuperset(read.products)):
                result.left_alone[name] = reasons.NOT_KNOWN_FORMULA
        for name, gate in members.gates.items():
            if not gate or name_of(gate) in options.names:
                result.left_alone[name] = reasons.HELD_BY_CLASS
        patterns = [pattern for method in methods.values() for pattern in method.patterns]
        computed = {pattern.gate for pattern in patterns}
        for function in functions - computed - result.left_alone.keys():
            result.left_alone[function] = reasons.NOT_CALLED
        for gate in {*gates} - {p.gate for p in patterns if p.operator != "gate"}:
            if options.fuse_bias and is_kind(gate, "gelu"):
                result.not_fused.setdefault(gate, reasons.NO_LINEAR_BEFORE)
            if options.recompute:
                result.not_recomputed.setdefault(gate, reasons.NO_LINEAR_AFTER)
        return methods, result

    def _called_by(self, function: FunctionType, names: tuple[str, ...]) -> str:
        if (function, names) not in self._called:
            self._called[function, names] = called_by(function, names)
        return self._called[function, names]

    def _reading(self, member: object, names: tuple[str, ...]) -> Reading | None:
        if not isinstance(member, FunctionType):
            return None
        if (member, names) not in self._read:
            found = self._sources.definition(member)
            self._read[member, names] = _reading(found, names) if found else None
        return self._read[member, names]


def _reading(definition: Definition, names: tuple[str, ...]) -> Reading:
    flow = DataFlow(definition.function, definition.node)
    calls, products = calls_of_gates(definition, flow, names), products_like_gates(definition, flow)
    return Reading(definition, flow, list(calls), list(products))


def members_of(cls: type[Module]) -> dict[str, object]:
    """The members of a class with a function inside, without ``torch.nn.Module``'s. An overridden
    method that the overriding one may call is prefixed with its class's name."""
    found: dict[str, object] = {}
    for base in [b for b in cls.__mro__ if b not in (object, Module)]:
        for name, member in vars(base).items():
            is_special = name.startswith("__") and name.endswith("__") and name != "__call__"
            if is_special or not function_in(member):
                continue
            if name not in found:
                found[name] = member
            elif names_in(function_in(found[name]).__code__) & {"super", base.__name__}:
                found[f"{base.__name__}.{name}"] = member
    return found


def gates_of_class(cls: type[Module]) -> dict[str, str]:
    """By name, the gates that the class holds; "" for a member that contains one."""
    members = {k: v for base in cls.__mro__[::-1] for k, v in vars(base).items()}
    members = {k: v.__func__ if isinstance(v, staticmethod) else v for k, v in members.items()}
    return {name: gate_of(value) or "" for name, value in members.items() if holds_gate(value)}


def function_in(member: object) -> FunctionType | None:
    """The function inside a method, a property, a class method, a cached method and the like."""
    attribute = _HOLDERS.get(type(member))
    function = inspect.unwrap(getattr(member, attribute)) if attribute else member
    is_function = isinstance(function, FunctionType) and not is_made_here(function)
    return inspect.unwrap(function) if is_function else None


_HOLDERS = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
    functools.partialmethod: "func",
    type(functools.lru_cache(print)): "__wrapped__",
}


def means_its_class(instructions: list[dis.Instruction]) -> bool:
    """Whether a method calls ``super(self.__class__, self)`` or ``super(type(self), self)``, which
    would resolve differently in a derived class."""
    names = [i.argval if isinstance(i.argval, str) else "" for i in instructions]
    after = [names[index + 1 : index + 4] for index, name in enumerate(names) if name == "super"]
    return any({"__class__", "type"} & {*following} for following in after)
