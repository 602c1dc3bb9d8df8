"""Writes fitted polynomials as a C++ header."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

COEFFICIENTS = Path(__file__).resolve().parent.parent / "csrc" / "gates" / "coefficients"


def hexadecimal(value: float, real: str) -> str:
    """A C++ hexadecimal literal without trailing zeros."""
    mantissa, exponent = float(value).hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{int(exponent)}" + ("f" if real == "float" else "")


def polynomial(
    name: str,
    argument: str,
    coefficients: Sequence[float],
    comment: str,
    real: str = "float",
    centre: float = 0,
    tag: str = "",
) -> str:
    """A function that evaluates the polynomial in argument - centre, lowest degree first.

    `tag` is a type of which the function takes an unnamed argument, to overload it.
    """
    variable = f"{argument} - {hexadecimal(centre, real)}" if centre else argument
    factor, first = (f"{variable} * ", 1) if coefficients[0] == 0 else ("", 0)
    terms = ", ".join([variable, *(hexadecimal(c, real) for c in coefficients[first:])])
    opening = f"return {factor}horner("
    call = textwrap.fill(f"{opening}{terms});", 98, subsequent_indent=" " * len(opening))
    parameters = ", ".join([*([tag] if tag else []), f"{real} {argument}"])
    return "\n".join(
        [
            textwrap.fill(comment, 100, initial_indent="// ", subsequent_indent="// "),
            f"GELU_KERNELS_HD {real} {name}({parameters}) {{",
            textwrap.indent(call, "  "),
            "}",
        ]
    )


def constants(name: str, values: Mapping[str, float], real: str) -> str:
    """A specialisation that holds the given numbers."""
    lines = [
        f"  static constexpr {real} {key} = {hexadecimal(value, real)};"
        for key, value in values.items()
    ]
    return "\n".join(["template <>", f"struct {name} {{", *lines, "};"])


def write(name: str, module: str, functions: Sequence[str]) -> None:
    """Writes csrc/gates/coefficients/`name`."""
    text = "\n\n".join(
        [
            f"// Written by `python -m {module}`; do not edit.\n// clang-format off\n#pragma once",
            '#include "csrc/gates/arithmetic.h"',
            "namespace gelu_kernels {",
            *functions,
            "}  // namespace gelu_kernels",
        ]
    )
    COEFFICIENTS.mkdir(exist_ok=True)
    (COEFFICIENTS / name).write_text(text + "\n")
