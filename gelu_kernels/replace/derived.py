"""Classes derived from a module's own, in which some methods compute by our operators.

The module stays the object it is, with its attributes, hooks and ``isinstance``. A method made here
runs as long as the method it was made from is the same, and else that one.
"""

import copyreg
import functools
import inspect
from collections.abc import Callable
from types import FunctionType

from torch.nn import Module

_RECIPE = "_gelu_kernels_recipe"  # only a class made here has its own
_SOURCE = "_gelu_kernels_source"


class _Quiet:
    """Comes before the base of a class made here, whose ``__init_subclass__`` thus does not hear of
    it: it may keep a list of models."""

    def __init_subclass__(cls) -> None:
        pass

    def __reduce_ex__(self, protocol: int) -> str | tuple:
        """For copies and pickles: where a module is loaded its class is made again."""
        reduced = super().__reduce_ex__(protocol)
        cls = type(self)
        if _RECIPE not in vars(cls) or reduced[:2] != (copyreg.__newobj__, (cls,)):
            return reduced
        return _restored, (original(cls), *vars(cls)[_RECIPE]), *reduced[2:]


def original(cls: type[Module]) -> type[Module]:
    """The class that a class made here is derived from; another one itself."""
    return cls.__bases__[1] if _RECIPE in vars(cls) else cls


def arguments_of(cls: type[Module]) -> tuple:
    """What a class made here was made from; empty for another."""
    return vars(cls)[_RECIPE][1:] if _RECIPE in vars(cls) else ()


def derive(
    base: type[Module],
    recipe: tuple,
    methods: Callable[[], dict[str, FunctionType]],
    source: object = None,
) -> type[Module]:
    """The class of a recipe: a function that makes it of the base, and its other arguments. It is
    made once for each source."""
    for cls in base.__subclasses__():
        if (vars(cls).get(_RECIPE), vars(cls).get(_SOURCE)) == (recipe, source):
            return cls
    kept = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    made, kind = {_RECIPE: recipe, _SOURCE: source}, type(base)
    meta = kind if issubclass(kind, _Derived) else type("Derived", (_Derived, kind), {})
    return meta(base.__name__, (_Quiet, base), {**kept, **made, **methods()})


class _Derived(type):
    """Who patches the class of a module means the one it was written with."""

    def __setattr__(cls, name: str, value: object) -> None:
        if original(cls) is cls:
            super().__setattr__(name, value)
        else:
            setattr(original(cls), name, value)


def guarded(
    base: type[Module],
    name: str,
    function: FunctionType,
    new: Callable,
    holds: Callable[[Module], bool] = lambda module: True,
) -> FunctionType:
    """A method that is ``new`` as long as the base's method is the function as it is now, and
    ``holds`` of the module."""
    inner = inspect.unwrap(function)
    code, inner_code = function.__code__, inner.__code__
    defaults, more_defaults = inner.__defaults__, inner.__kwdefaults__

    @functools.wraps(function)
    def method(self: Module, *args: object, **kwargs: object) -> object:
        original = getattr(base, name)
        is_new = (
            original is function
            and function.__code__ is code
            and inner.__code__ is inner_code
            and inner.__defaults__ is defaults
            and inner.__kwdefaults__ is more_defaults
            and holds(self)
        )
        return (new if is_new else original)(self, *args, **kwargs)

    # Code of its own, as torch.compile compiles one code for a few modules only.
    method.__code__ = method.__code__.replace(co_name=name)
    setattr(method, _RECIPE, True)
    return method


def is_made_here(function: FunctionType) -> bool:
    return hasattr(function, _RECIPE)


def _restored(base: type[Module], make: Callable[..., type[Module]], *arguments: object) -> Module:
    return object.__new__(make(base, *arguments))
