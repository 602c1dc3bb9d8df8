"""Gates that are not an activation of a module: in containers, in objects and in called functions;
and why a value with a gate's name is left alone."""

import dis
import inspect
from collections import deque
from dataclasses import is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace

import torch

from gelu_kernels.replace import reasons
from gelu_kernels.replace.activations import gate_of, intercepted, name_of_class
from gelu_kernels.replace.describe import describe, function_of, is_ours
from gelu_kernels.replace.source import cell_contents

_STATE = {*vars(torch.nn.Module())}


def held_by(owner: torch.nn.Module) -> dict[str, object]:
    """Its children and its own attributes."""
    own = {name: value for name, value in vars(owner).items() if name not in _STATE}
    return {**owner._modules, **own}


def why_not(value: object, names: tuple[str, ...]) -> str:
    """Why an activation, or a value named like one, is left alone; empty for anything else."""
    if gate_of(value):
        return intercepted(value)
    if is_compiled(value) and gate_of(value._orig_mod):
        return reasons.COMPILED
    if holds_gate(value):
        return reasons.kept_in(value)
    if isinstance(value, torch.jit.ScriptModule):
        name = value.original_name
    elif isinstance(value, torch.nn.Module):
        name = "" if value._modules else type(value).__name__
    else:
        name = "" if isinstance(value, type) else name_of_function(function_of(value))
    if is_ours(value) or not (is_one_of(names, name) or called_by(value, names)):
        return ""
    return reasons.not_known(describe(value))


def is_compiled(value: object) -> bool:
    return name_of_class(value) == "torch._dynamo.eval_frame.OptimizedModule"


def name_of_function(value: object) -> str:
    name = inspect.getattr_static(value, "__name__", "") if callable(value) else ""
    name = name.__get__(value) if inspect.isgetsetdescriptor(name) else name
    return name if isinstance(name, str) else ""


def is_one_of(names: tuple[str, ...], name: str) -> bool:
    """Whether a name says GELU or SiLU, or ACT2FN, transformers' table of activations."""
    known = (*names, "act2fn", *(["swish"] if "silu" in names else []))
    return any(n in name.lower() for n in known) and not name.lower().startswith("hard")


def holds_gate(value: object, depth: int = 3) -> bool:
    """Whether it is a gate, or a container, a bound method, a class or a simple object that holds
    one."""
    if gate_of(value):
        return True
    if depth == 0 or isinstance(value, torch.nn.Module | str):
        return False
    if isinstance(value, dict):
        parts = [*value.values()]
    elif isinstance(value, list | tuple | set | frozenset | deque):
        parts = [*value]
    elif isinstance(value, MethodType | partial):
        parts = [value.__self__ if isinstance(value, MethodType) else value.func]
    elif is_plain_class(value) or isinstance(value, SimpleNamespace) or is_dataclass(value):
        parts = [*getattr(value, "__dict__", {}).values()]
    else:
        parts = []
    return any(holds_gate(part, depth - 1) for part in parts)


def is_plain_class(value: object) -> bool:
    return isinstance(value, type) and not issubclass(value, torch.nn.Module)


def called_by(value: object, names: tuple[str, ...]) -> str:
    """The name of the first gate that a function calls, also through its closure, its defaults and
    other functions of its module; ours excluded."""
    functions = functions_of(value)
    for each in functions:
        found = {name: each.__globals__.get(name) for name in sorted(names_in(each.__code__))}
        given = given_to(each)
        gates = [n for n, v in found.items() if is_one_of(names, n) or holds_gate(v)]
        ours = names_of_ours(each) if gates else set()
        gates = [n for n in gates if n not in ours]
        gates += [n for n, v in given.items() if holds_gate(v) and not is_ours(v)]
        if gates:
            return gates[0]
        others = [v for n, v in found.items() if n not in ours]
        own = [v for v in others if getattr(v, "__module__", "") == each.__module__]
        inner = [f for v in (*own, *given.values()) for f in functions_of(v)]
        functions += [f for f in inner if f not in functions]
    return ""


def functions_of(value: object) -> list[FunctionType]:
    """A function itself, the functions of a class, or the ``__call__`` of an object."""
    if isinstance(value, torch.nn.Module):
        return []
    parts = [value, inspect.getattr_static(type(value), "__call__", None)]
    if is_plain_class(value):
        parts = [*vars(value).values()]
    parts = [p.__func__ if isinstance(p, staticmethod | classmethod) else p for p in parts]
    return [part for part in parts if isinstance(part, FunctionType)]


def given_to(function: FunctionType) -> dict[str, object]:
    """The values in a function's closure and its defaults, by name."""
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    closure = zip(code.co_freevars, map(cell_contents, function.__closure__ or ()), strict=True)
    given = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    return {**given, **(function.__kwdefaults__ or {}), **dict(closure)}


def names_in(code: CodeType) -> set[str]:
    """Globals and attributes, also of inner functions, and strings that ``getattr`` may take."""
    return {name for each in codes_in(code) for name in (*each.co_names, *looked_up_in(each))}


def names_of_ours(function: FunctionType) -> set[str]:
    """The names that it reads only from this package, as in ``functional.gelu(x)``."""
    ours: set[str] = set()
    others: set[str] = set()
    for code in codes_in(function.__code__):
        others.update(looked_up_in(code))
        value = None
        for i in dis.get_instructions(code):
            is_attribute = i.opcode in dis.hasname and isinstance(value, ModuleType)
            value = vars(value).get(i.argval) if is_attribute else None
            if i.opname == "LOAD_GLOBAL":
                value = function.__globals__.get(i.argval)
            if i.opcode in dis.hasname:
                is_package = getattr(value, "__name__", "") == "gelu_kernels"
                (ours if is_ours(value) or is_package else others).add(i.argval)
    return ours - others


def codes_in(code: CodeType) -> list[CodeType]:
    """The code of a function and of its inner functions."""
    codes = [code]
    for each in codes:
        codes += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
    return codes


def looked_up_in(code: CodeType) -> list[str]:
    """The strings that ``getattr`` may take."""
    return texts_in(code) if "getattr" in code.co_names else []


def texts_in(code: CodeType) -> list[str]:
    """The string constants that may be names."""
    return [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
