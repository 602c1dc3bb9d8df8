"""The derived classes of replaced modules: of activations, of ``Sequential``, and of modules whose
methods have patterns."""

import ast
from functools import partial
from types import FunctionType

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import Module, Sequential

from gelu_kernels import functional
from gelu_kernels.replace import fused, sequential
from gelu_kernels.replace.activations import GATES, gate_of_class, intercepted
from gelu_kernels.replace.derived import derive, guarded
from gelu_kernels.replace.kinds import KINDS, value_of
from gelu_kernels.replace.methods import Method, Reader
from gelu_kernels.replace.options import Options
from gelu_kernels.replace.source import is_in_closures, rebuild

Needs = frozenset[tuple[str, str]]  # names of attributes, and their kinds


def gate_class(base: type[Module]) -> type[Module]:
    """The class of an activation. Inputs that the operator does not take, such as complex numbers,
    go to the original formula."""
    gate, function = gate_of_class(base), base.forward

    def forward(self: Module, input: Tensor) -> Tensor:
        name = GATES.get(self.approximate) if base is torch.nn.GELU else gate
        if name and fused.is_taken(input) and not intercepted(self):
            return functional.gate(input, gate=name)
        return function(self, input)

    recipe = (gate_class,)
    return derive(base, recipe, lambda: {"forward": guarded(base, "forward", function, forward)})


def sequential_class(base: type[Sequential], options: Options) -> type[Sequential]:
    def forward(self: Sequential, input: object) -> object:
        return sequential.run(self, input, options)

    method = partial(guarded, base, "forward", Sequential.forward, forward)
    return derive(base, (sequential_class, options), lambda: {"forward": method()})


def class_with(base: type[Module], methods: dict[str, Method], options: Options) -> type[Module]:
    """A class with the methods' patterns fused; equal modules share it."""
    needs = frozenset(n for m in methods.values() for p in m.patterns for n in p.needs)
    codes = tuple((name, m.function.__code__, *map(str, m.patterns)) for name, m in methods.items())

    def members() -> dict[str, FunctionType]:
        return {name: _fused(base, name, method) for name, method in methods.items()}

    return derive(base, (_class_again, options, needs), members, codes) if methods else base


def _class_again(base: type[Module], options: Options, needs: Needs) -> type[Module]:
    """The class for a loaded module, whose attributes are of the kinds in ``needs``."""
    gates = {name for name, kind in needs if kind in ("gate", "gelu")}
    methods, _ = Reader().search(base, lambda *need: need in needs, gates, options)
    return class_with(base, methods, options)


def _fused(base: type[Module], name: str, method: Method) -> FunctionType:
    values = {value: node for p in method.patterns for value, node in p.values.items()}
    table = {id(value.node): node for value, node in values.items()}
    function = rebuild(method.function, method.definition, table, fused)
    needs = {need for pattern in method.patterns for need in pattern.needs}
    checks = [(attribute, KINDS[kind]) for attribute, kind in needs]
    names = method.definition.function.__globals__
    called = {
        tuple(ast.unparse(value.node.func).split(".")): value.target
        for value in values
        if value.operation == "function"
    }

    def holds(self: Module) -> bool:
        modules = self.__dict__["_modules"]
        for attribute, is_so in checks:
            value = modules[attribute] if attribute in modules else value_of(self, attribute)
            if not is_so(value):
                return False
        if is_dynamo_compiling():
            return True
        return (not called or _are_called(called, names)) and is_in_closures(method.function)

    return guarded(base, name, method.function, function, holds)


def _are_called(functions: dict[tuple[str, ...], object], names: dict[str, object]) -> bool:
    """Whether these names still refer to the torch functions that the pattern called."""
    for (first, *rest), function in functions.items():
        found = names.get(first)
        for name in rest:
            found = getattr(found, name, None)
        if found is not function:
            return False
    return True
