"""Classes derived from a module's own class, with some methods rewritten to call our operators.

The module remains the same object, with its attributes, hooks and ``isinstance``. A new method runs
as long as the method it was made from is unchanged; otherwise the current method of the base runs.
"""

import copy
import copyreg
import functools
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import NamedTuple, NoReturn

from torch.nn import Module

_RECIPE = "_gelu_kernels_recipe"  # only a class made here defines it
_SOURCE = "_gelu_kernels_source"
_PATCHED = "_gelu_kernels_patched"
_NOTHING = object()

_deriving = threading.RLock()  # models may be replaced and loaded from several threads


class _Quiet:
    """Placed before the base of a class made here, so that the base's ``__init_subclass__``, which
    may register models, does not run."""

    def __init_subclass__(cls) -> None:
        pass

    def __reduce_ex__(self, protocol: int) -> str | tuple:
        """For copies and pickles: loading a module makes its class again."""
        reduced = super().__reduce_ex__(protocol)
        cls = type(self)
        if _RECIPE not in vars(cls) or reduced[:2] != (copyreg.__newobj__, (cls,)):
            return reduced
        return _restored, (original(cls), *vars(cls)[_RECIPE]), *reduced[2:]

    def __prepare_scriptable__(self) -> NoReturn:
        """Called first by ``torch.jit.script``, whose compiler cannot read the new methods."""
        raise TypeError(
            f"torch.jit.script does not compile {type(self).__name__}, which was replaced by "
            "gelu_kernels: restore() the model first, or use torch.export or torch.jit.trace"
        )


def original(cls: type[Module]) -> type[Module]:
    """The class that a class made here is derived from; any other class itself."""
    return cls.__bases__[1] if _RECIPE in vars(cls) else cls


def arguments_of(cls: type[Module]) -> tuple:
    """The arguments in the recipe of a class made here; empty for any other class."""
    return vars(cls)[_RECIPE][1:] if _RECIPE in vars(cls) else ()


def derive(
    base: type[Module],
    recipe: tuple,
    methods: Callable[[], dict[str, FunctionType]],
    source: object = None,
) -> type[Module]:
    """The class for a recipe, which is a function that makes the class from the base, and its other
    arguments. Each recipe and source make one class."""
    with _deriving:
        for cls in base.__subclasses__():
            if (vars(cls).get(_RECIPE), vars(cls).get(_SOURCE)) == (recipe, source):
                return cls
        kept = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
        made = {_RECIPE: recipe, _SOURCE: source, _PATCHED: {}}
        meta = _metaclass(type(base))
        return meta(base.__name__, (_Quiet, base), {**kept, **made, **methods()})


class _Derived(type):
    """Redirects a patch of the derived class to the original class. The new method gives way until
    the patch is undone."""

    def __setattr__(cls, name: str, value: object) -> None:
        base, patched = original(cls), vars(cls).get(_PATCHED, {})
        if base is cls:
            super().__setattr__(name, value)
        elif name in patched and value is patched[name].made:
            delattr(cls, name)
        else:
            before, made = vars(base).get(name, _NOTHING), vars(cls).get(name, _NOTHING)
            patched.setdefault(name, _Patched(before, made))
            setattr(base, name, value)
            if made is not _NOTHING:
                super().__delattr__(name)
            if is_made_here(made):
                setattr(made, _PATCHED, True)

    def __delattr__(cls, name: str) -> None:
        base = original(cls)
        if base is cls:
            super().__delattr__(name)
            return
        before, made = vars(cls)[_PATCHED].pop(name, (_NOTHING, _NOTHING))
        if before is _NOTHING:
            delattr(base, name)
        else:
            setattr(base, name, before)
        if made is not _NOTHING:
            super().__setattr__(name, made)
        if is_made_here(made):
            setattr(made, _PATCHED, False)


class _Patched(NamedTuple):
    """What the base held before a patch, and what the derived class held."""

    before: object
    made: object


@functools.cache
def _metaclass(kind: type) -> type:
    if issubclass(kind, _Derived):
        return kind
    meta = type("Derived", (_Derived, kind), {})
    copyreg.pickle(meta, _reduced)
    return meta


def _reduced(cls: type[Module]) -> str | tuple:
    """A class made here is pickled as its base."""
    base = original(cls)
    return cls.__qualname__ if base is cls else (original, (base,))


def guarded(
    base: type[Module],
    name: str,
    function: FunctionType,
    new: Callable,
    holds: Callable[[Module], bool] = lambda module: True,
) -> FunctionType:
    """A method that calls ``new`` while the base's method is still ``function``, unchanged, and
    ``holds(module)`` is true."""
    inner = inspect.unwrap(function)
    code, inner_code = function.__code__, inner.__code__
    defaults, more_defaults = inner.__defaults__, copy.copy(inner.__kwdefaults__)

    @functools.wraps(function)
    def method(self: Module, *args: object, **kwargs: object) -> object:
        is_new = (
            getattr(base, name) is function
            and function.__code__ is code
            and inner.__code__ is inner_code
            and inner.__defaults__ is defaults
            and inner.__kwdefaults__ == more_defaults
            and holds(self)
        )
        if is_new:
            return new(self, *args, **kwargs)
        if getattr(method, _PATCHED):
            return function(self, *args, **kwargs)  # Called by the patch in its place.
        if isinstance(self, _Quiet):
            return getattr(super(_Quiet, self), name)(*args, **kwargs)
        return getattr(base, name)(self, *args, **kwargs)  # The model has been restored.

    # A code object of its own, as torch.compile limits how often it compiles one.
    method.__code__ = method.__code__.replace(co_name=name)
    setattr(method, _RECIPE, method)
    setattr(method, _PATCHED, False)
    return method


def is_made_here(function: object) -> bool:
    return getattr(function, _RECIPE, None) is function  # functools.wraps copies attributes


def _restored(base: type[Module], make: Callable[..., type[Module]], *arguments: object) -> Module:
    return object.__new__(make(base, *arguments))
