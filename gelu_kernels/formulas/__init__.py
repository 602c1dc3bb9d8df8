"""The formulas of the gates in Python. csrc/gates/ has them in C++, by hand, with the same bits.

Each gate of csrc/gates/gates.h has a module of the same name here, with:

- ``value``, ``derivative`` and ``second_derivative``, functions of x and of constants C;
- ``derivative_to_encode``, the derivative for a code of 8 or 4 bits;
- ``tail`` and ``density``, F(-a) and F'(a) for a >= 0, in float32 and float64;
- ``in_tail``, for a random mask: whether u < 2^32 F(-|x|) - 1;
- ``constants``, C for each precision of csrc/gates/arithmetic.h; ``random`` for ``in_tail``; and
  ``exp2_fp16`` and ``exp2_bf16`` where exp2 is accurate to a unit in the last place;
- ``left_limit``, the value at -infinity;
- ``ties``, of float16 values: ``"none"``, ``"subnormal"`` or ``"any"`` (csrc/gates/storage.h).

The functions use only the primitives of ``arithmetic``, which compute with NumPy in float32; ``of``
replaces these by the same primitives of Triton or Inductor.
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
    """The contents of a gate's module, with its functions over another arithmetic and compiled."""
    module = import_module(f"{__name__}.{gate}")
    primitives = {name: f for name, f in vars(arithmetic).items() if not name.startswith("__")}
    names = {**vars(module), **primitives}
    for name, f in vars(module).items():
        if isinstance(f, FunctionType) and name not in primitives:
            if f.__module__ == module.__name__:
                names[name] = compiler(FunctionType(f.__code__, names, name))
            else:  # of another module of formulas
                other = of(f.__module__.removeprefix(f"{__name__}."), arithmetic, compiler)
                names[name] = getattr(other, name)
    return SimpleNamespace(**names)
