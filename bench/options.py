"""Options that the commands share.

A size is a number of elements ("16", "2^18") or of bytes ("64MiB", "1GiB").
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import click
import torch

from bench.memory import fix_the_source_of_memory
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


def sizes(default: Iterable[str] = (), help: str = "Elements, or bytes.") -> Callable:
    """The option --size, which may be given several times."""
    return click.option(
        *("--size", "sizes"),
        type=SizeType(),
        multiple=True,
        default=tuple(default),
        show_default=bool(default),
        help=help,
    )


def choice(
    option: str,
    parameter: str,
    values: Iterable[str],
    default: Iterable[str] | None = None,
    help: str | None = None,
) -> Callable:
    """An option that may be given several times; without a default, all if never."""
    values = tuple(values)
    default = values if default is None else tuple(default)
    return click.option(
        option,
        parameter,
        type=click.Choice(values),
        multiple=True,
        default=default,
        show_default=bool(default),
        help=help,
    )


device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True
)
deadline_option = click.option(
    "--deadline",
    type=click.FloatRange(0),
    default=math.inf,
    help="Seconds after which nothing more starts; what was skipped is listed.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), help="Of the CPU.  [default: as torch has them]"
)


def prepare(threads: int | None) -> None:
    """Makes runs comparable: their threads, random numbers, and source of memory."""
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    fix_the_source_of_memory()
