"""A module some of whose methods compute patterns by one operator each.

The module gets a class made here, which has these methods and is derived from its own class. Each
call looks whether what the methods were made from still holds. If not, after hooks, adapters,
quantisation, parametrizations or another method have come, the original runs.
"""

import ast
import functools
import inspect
from collections.abc import Callable
from types import FunctionType

from torch.compiler import is_dynamo_compiling
from torch.nn import Module, Sequential

from gelu_kernels.replace import fused, sequential
from gelu_kernels.replace.kinds import KINDS, value_of
from gelu_kernels.replace.methods import Method, Reader
from gelu_kernels.replace.options import Options
from gelu_kernels.replace.source import rebuild

_MADE_FROM = "_gelu_kernels_made_from"  # only a class made here has it

Needs = frozenset[tuple[str, str]]  # names of attributes, and their kinds


def original(cls: type[Module]) -> type[Module]:
    return cls.__base__ if _MADE_FROM in vars(cls) else cls


def options_of(cls: type[Module]) -> Options:
    return vars(cls)[_MADE_FROM][0] if _MADE_FROM in vars(cls) else Options()


def class_with(base: type[Module], methods: dict[str, Method], options: Options) -> type[Module]:
    """A class that computes the patterns of the methods; the same one for all modules alike."""
    needs = frozenset(n for m in methods.values() for p in m.patterns for n in p.needs)
    codes = tuple((name, m.function.__code__, *map(str, m.patterns)) for name, m in methods.items())

    def members() -> dict[str, FunctionType]:
        return {name: _fused(base, name, method) for name, method in methods.items()}

    return _class(base, (options, needs, codes), members) if methods else base


def sequential_class(base: type[Sequential], options: Options) -> type[Sequential]:
    def forward(self: Sequential, input: object) -> object:
        return sequential.run(self, input, options)

    def members() -> dict[str, FunctionType]:
        return {"forward": _guarded(base, "forward", Sequential.forward, forward)}

    return _class(base, (options, frozenset(), ()), members)


def _class(
    base: type[Module], made_from: tuple, members: Callable[[], dict[str, FunctionType]]
) -> type[Module]:
    for cls in base.__subclasses__():
        if vars(cls).get(_MADE_FROM) == made_from:
            return cls
    kept = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    own = {"__reduce_ex__": _reduce, _MADE_FROM: made_from}
    return type(base)(base.__name__, (base,), {**kept, **own, **members()})


def _reduce(module: Module, protocol: int) -> tuple:
    """For copies and pickles: where a module is loaded its class is made again."""
    cls = type(module)
    made_here = next(base for base in cls.__mro__ if _MADE_FROM in vars(base))
    reduced = made_here.__base__.__reduce_ex__(module, protocol)
    if cls is not made_here:
        return reduced
    options, needs, _ = vars(cls)[_MADE_FROM]
    return _restored, (cls.__base__, options, needs), *reduced[2:]


def _restored(base: type[Module], options: Options, needs: Needs) -> Module:
    """Without its attributes yet, which are as ``needs`` has them."""
    if sequential.is_sequential(base):
        return object.__new__(sequential_class(base, options))
    gates = {name for name, kind in needs if kind in ("gate", "gelu")}
    methods, _ = Reader().search(base, lambda *need: need in needs, gates, options)
    return object.__new__(class_with(base, methods, options))


def _fused(base: type[Module], name: str, method: Method) -> FunctionType:
    values = {value: node for p in method.patterns for value, node in p.values.items()}
    table = {id(value.node): node for value, node in values.items()}
    function = rebuild(method.function, method.definition, table, fused)
    needs = {need for pattern in method.patterns for need in pattern.needs}
    called = {
        tuple(ast.unparse(value.node.func).split(".")): value.target
        for value in values
        if value.operation == "function"
    }
    return _guarded(base, name, method.function, function, tuple(needs), called)


def _guarded(
    base: type[Module],
    name: str,
    function: FunctionType,
    fused_function: FunctionType,
    needs: tuple[tuple[str, str], ...] = (),
    called: dict[tuple[str, ...], object] | None = None,
) -> FunctionType:
    """A method that runs the fused function as long as what it was made from holds: the original
    one, the kinds of the attributes, and the functions of torch that a pattern called."""
    inner = inspect.unwrap(function)
    code, inner_code = function.__code__, inner.__code__
    defaults, more_defaults = inner.__defaults__, inner.__kwdefaults__
    checks = tuple((attribute, KINDS[kind]) for attribute, kind in needs)

    @functools.wraps(function)
    def method(self: Module, *args: object, **kwargs: object) -> object:
        original = getattr(base, name)
        holds = (
            original is function
            and function.__code__ is code
            and inner.__code__ is inner_code
            and inner.__defaults__ is defaults
            and inner.__kwdefaults__ is more_defaults
            and (not called or is_dynamo_compiling() or _are_called(called, inner.__globals__))
        )
        modules = self.__dict__["_modules"]
        for attribute, is_so in checks:
            value = modules[attribute] if attribute in modules else value_of(self, attribute)
            holds = holds and is_so(value)
        return (fused_function if holds else original)(self, *args, **kwargs)

    # Code of its own, as torch.compile compiles one code for a few modules only.
    method.__code__ = method.__code__.replace(co_name=name)
    return method


def _are_called(functions: dict[tuple[str, ...], object], names: dict[str, object]) -> bool:
    """Whether the names still stand for the functions."""
    for (first, *rest), function in functions.items():
        found = names.get(first)
        for name in rest:
            found = getattr(found, name, None)
        if found is not function:
            return False
    return True
