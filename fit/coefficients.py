"""Writes fitted numbers twice: as a C++ header and as a module of gelu_kernels.formulas."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = Path("csrc/gates/coefficients")
MODULES = Path("gelu_kernels/formulas/coefficients")

PRECISIONS = {"float": "fp32", "double": "fp64"}


def hexadecimal(value: float, real: str) -> str:
    """A C++ hexadecimal literal without trailing zeros."""
    mantissa, exponent = float(value).hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{int(exponent)}" + ("f" if real == "float" else "")


def call(opening: str, arguments: Sequence[str], closing: str) -> str:
    text = f"{opening}{', '.join(arguments)}{closing}"
    return textwrap.fill(text, 98, subsequent_indent=" " * len(opening))


@dataclass(frozen=True)
class Polynomial:
    """In argument - centre, lowest degree first.

    In C++ it is a function of a float or of a pair of floats. `tag` is the type of an unnamed first
    parameter, which selects the overload.
    """

    name: str
    argument: str
    coefficients: Sequence[float]
    comment: str
    real: str = "float"
    centre: float = 0
    tag: str = ""

    @property
    def precision(self) -> str:
        return self.tag or PRECISIONS[self.real]

    def cpp(self) -> str:
        centre = f" - {hexadecimal(self.centre, self.real)}" if self.centre else ""
        variable = self.argument + centre
        factor, first = (f"{variable} * ", 1) if self.coefficients[0] == 0 else ("", 0)
        terms = [variable, *(hexadecimal(c, self.real) for c in self.coefficients[first:])]
        body = call(f"return {factor}polynomial(", terms, ");")
        template, real = [], self.real
        if self.real == "float":
            template, real = ["template <class Real>"], "Real"
        parameters = ", ".join([*([self.tag] if self.tag else []), f"{real} {self.argument}"])
        return "\n".join(
            [
                textwrap.fill(self.comment, 100, initial_indent="// ", subsequent_indent="// "),
                *template,
                f"GELU_KERNELS_HD {real} {self.name}({parameters}) {{",
                textwrap.indent(body, "  "),
                "}",
            ]
        )

    def python(self) -> str:
        first = 1 if self.coefficients[0] == 0 else 0
        numbers = [repr(float(c)) for c in self.coefficients[first:]]
        return call(f"Polynomial({float(self.centre)!r}, (", numbers, ",))")


@dataclass(frozen=True)
class Constants:
    """The constants of a gate for a precision: a specialisation of a C++ template.

    Where `type` is no C++ identifier, such as "8bit", a struct of its own.
    """

    name: str
    type: str
    values: Mapping[str, float]
    real: str
    comment: str = ""

    @property
    def is_struct(self) -> bool:
        return not self.type.isidentifier()

    @property
    def precision(self) -> str:
        return PRECISIONS.get(self.type, self.type)

    def cpp(self) -> str:
        lines = [
            f"  static constexpr {self.real} {key} = {hexadecimal(value, self.real)};"
            for key, value in self.values.items()
        ]
        opening = ["template <>", f"struct {self.name}<{self.type}> {{"]
        if self.is_struct:
            opening = [f"// {self.comment}", f"struct {self.name}_{self.type} {{"]
        return "\n".join([*opening, *lines, "};"])

    def python(self) -> str:
        values = [f"{key}={float(value)!r}" for key, value in self.values.items()]
        return call("Constants(", values, ")")


Part = Polynomial | Constants


def header(program: str, parts: Sequence[Part]) -> str:
    declarations = dict.fromkeys(
        f"template <class Type>\nstruct {part.name};"
        for part in parts
        if isinstance(part, Constants) and not part.is_struct
    )
    text = [
        f"// Written by `python -m {program}`; do not edit.\n// clang-format off\n#pragma once",
        '#include "csrc/gates/arithmetic.h"',
        "namespace gelu_kernels {",
        *declarations,
        *(part.cpp() for part in parts),
        "}  // namespace gelu_kernels",
    ]
    return "\n\n".join(text) + "\n"


def tables(parts: Sequence[Part]) -> Iterator[str]:
    """For each name, a dictionary keyed by precision."""
    for name, same in groupby(sorted(parts, key=lambda part: part.name), lambda part: part.name):
        rows = [f'    "{part.precision}": {part.python()},' for part in same]
        yield "\n".join([f"{name} = {{", *rows, "}"])


def module(program: str, parts: Sequence[Part]) -> str:
    types = sorted({type(part).__name__ for part in parts})
    text = [
        f'"""Written by `python -m {program}`; do not edit."""\n# fmt: off\n# ruff: noqa',
        f"from gelu_kernels.formulas.coefficients import {', '.join(types)}",
        *tables(parts),
    ]
    return "\n\n".join(text) + "\n"


def write(program: str, parts: Sequence[Part]) -> None:
    """Writes the header and the module named after the program, `fit.<name>`."""
    name = program.removeprefix("fit.")
    for folder, suffix, text in ((HEADERS, "h", header), (MODULES, "py", module)):
        path = ROOT / folder / f"{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(program, parts))
