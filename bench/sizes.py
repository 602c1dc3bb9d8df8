"""Sizes of tensors: elements ("16", "2^18") or bytes ("64MiB", "1GiB")."""

import re
from dataclasses import dataclass

import click

from bench.workloads import DTYPES

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

LADDER = ("16", "2^14", "2^18", "2^22", "64MiB", "256MiB", "1GiB")
# All of them would take a CPU half an hour.
ON_A_CPU = ("16", "2^18", "2^20")


@dataclass(frozen=True)
class Size:
    text: str
    number: int
    is_bytes: bool

    def elements(self, dtype: str) -> int:
        return self.number // DTYPES[dtype].itemsize if self.is_bytes else self.number

    def __str__(self) -> str:
        return self.text


class SizeType(click.ParamType):
    name = "size"

    def convert(self, value: object, param: object, ctx: object) -> Size:
        if isinstance(value, Size):
            return value
        text = str(value)
        if found := re.fullmatch(r"(\d+)([KMG]iB)", text):
            number, is_bytes = int(found[1]) * UNITS[found[2]], True
        elif found := re.fullmatch(r"2\^(\d{1,2})", text):
            number, is_bytes = 2 ** int(found[1]), False
        elif text.isdecimal():
            number, is_bytes = int(text), False
        else:
            self.fail(f"{text!r} is no size: write 16, 2^18 or 64MiB", param, ctx)
        if number < 8:
            self.fail(f"{text!r} is less than one element of float64", param, ctx)
        return Size(text, number, is_bytes)
