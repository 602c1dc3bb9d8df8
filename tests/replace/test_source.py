"""The source of a function, found and compiled again."""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import textwrap
import traceback
import typing
from types import FunctionType, ModuleType

import torch

from gelu_kernels.replace.source import Sources, rebuild
from tests.cases import each

MODULES = [
    ast, contextlib, dataclasses, functools, inspect, textwrap, typing, torch.nn.modules.module,
    torch.nn.modules.transformer, torch.nn.modules.container,
]  # fmt: skip


def functions_of(module: ModuleType) -> list[FunctionType]:
    holders = [module, *(v for v in vars(module).values() if isinstance(v, type))]
    members = [member for holder in holders for member in vars(holder).values()]
    return [
        member
        for member in members
        if isinstance(member, FunctionType)
        and member.__code__.co_filename == module.__file__
        and member.__code__.co_name != "<lambda>"
        and not inspect.iscoroutinefunction(member)
        and not hasattr(member, "__wrapped__")
    ]


# In a large file each function takes 30 ms.
@each(lambda module, step: step == 1, module=MODULES, step=[13, 1])
def test_functions_are_read(module: ModuleType, step: int) -> None:
    sources = Sources()
    functions = functions_of(module)
    assert functions
    for function in functions[::step]:
        definition = sources.definition(function)
        assert definition, function
        code = rebuild(function, definition, {}, None).__code__
        assert code.co_varnames != function.__code__.co_varnames  # it knows FUSED
        assert code.co_names == function.__code__.co_names


def with_count(function):
    """A decorator with a state."""
    count = 0

    @functools.wraps(function)
    def wrapper(*args, scale=1, **kwargs):
        nonlocal count
        # Not an assert, as pytest would rewrite it.
        is_known = function.__doc__ == "It counts." and function.__annotations__ == {"x": int}
        count += scale if is_known else 100
        return count, function(*args, **kwargs)

    return wrapper


class Base:
    def method(self, x):
        return x + 1


class Derived(Base):
    __secret = 5

    def method(self, x, y=7, *, z=11):
        return 3 * super().method(x) + y + z + self.__secret

    @with_count
    @with_count
    def counted(self, x: int):
        """It counts."""
        return x + 1

    @functools.lru_cache  # noqa: B019
    def cached(self, x):
        return x + 1

    def fails(self, x):
        return 1 / x


def twice(function: FunctionType, number: int) -> FunctionType:
    """The function with one number doubled."""
    definition = Sources().definition(function)
    (node,) = [
        node
        for node in ast.walk(definition.node)
        if isinstance(node, ast.Constant) and node.value == number
    ]
    return rebuild(function, definition, {id(node): ast.Constant(2 * number)}, None)


def test_a_rebuilt_function_has_all_that_the_function_has() -> None:
    derived = Derived()
    rebuilt = twice(Derived.method, 3)
    assert (derived.method(1), rebuilt(derived, 1)) == (6 + 7 + 11 + 5, 12 + 7 + 11 + 5)
    assert rebuilt(derived, 1, 2, z=4) == 12 + 2 + 4 + 5
    assert rebuilt.__qualname__ == "Derived.method"


def test_decorators_wrap_it_with_the_state_they_have() -> None:
    derived = Derived()
    assert derived.counted(1) == (1, (1, 2))
    rebuilt = twice(Derived.counted, 1)
    assert rebuilt(derived, 1, scale=10) == (11, (2, 3))
    assert derived.counted(1) == (12, (3, 2))


def test_lines_of_a_traceback() -> None:
    rebuilt = twice(Derived.fails, 1)
    lines = []
    for function in (rebuilt, Derived.fails):
        try:
            function(None, 0)
        except ZeroDivisionError as error:
            lines.append(traceback.extract_tb(error.__traceback__)[-1].lineno)
    assert lines[0] == lines[1]


def test_a_decorator_without_the_function_in_its_closure() -> None:
    assert Sources().definition(Derived.cached) is None


def test_other_source(tmp_path) -> None:
    """There is none for a class made by exec, or for a file edited after its import."""
    namespace: dict[str, object] = {}
    exec("def made(x):\n    return x + 1", namespace)
    assert Sources().definition(namespace["made"]) is None
    file = tmp_path / "edited.py"
    file.write_text("def edited(x):\n    return x + 1\n")
    spec = importlib.util.spec_from_file_location("edited", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert Sources().definition(module.edited)
    file.write_text("def edited(x):\n    return x + 2\n")
    assert Sources().definition(module.edited) is None
    file.write_text("def edited(x:\n")
    assert Sources().definition(module.edited) is None
