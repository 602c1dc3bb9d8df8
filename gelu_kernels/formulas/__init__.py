"""The formulas of the gates in Python. csrc/gates/ has them in C++, by hand, with the same bits.

Each gate of csrc/gates/gates.h has a module of its name here, which has:

- ``value``, ``derivative`` and ``second_derivative``, functions of x and of constants C;
- ``tail`` and ``density``, F(-a) and F'(a) for a >= 0, in float32 and float64;
- ``in_tail``, for a random mask: whether u < 2^32 F(-|x|) - 1;
- ``constants``, C for each precision of csrc/gates/arithmetic.h; ``random`` for ``in_tail``; and
  ``exp2_fp16`` and ``exp2_bf16`` for where exp2 is right to a unit in the last place;
- ``left_limit``, the value at -infinity;
- ``ties``, of float16 values: ``"none"``, ``"subnormal"`` or ``"any"`` (csrc/gates/storage.h).

As they stand the functions compute with NumPy, in float32. They are written in the primitives
of ``arithmetic`` alone; Triton and Inductor have the same ones, which ``of`` puts in.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType, SimpleNamespace


@cache
def of(
    gate: str,
    arithmetic: ModuleType,
    compiler: Callable[[FunctionType], object] = lambda function: function,
) -> SimpleNamespace:
    """What a gate's module has, the functions over another arithmetic and given to a compiler."""
    module = import_module(f"{__name__}.{gate}")
    words = {name: word for name, word in vars(arithmetic).items() if not name.startswith("__")}
    names = {**vars(module), **words}
    for name, f in vars(module).items():
        if isinstance(f, FunctionType) and name not in words:
            if f.__module__ == module.__name__:
                names[name] = compiler(FunctionType(f.__code__, names, name))
            else:  # of another module of formulas
                other = of(f.__module__.removeprefix(f"{__name__}."), arithmetic, compiler)
                names[name] = getattr(other, name)
    return SimpleNamespace(**names)
