"""The code and the properties of kernels in a cubin, which is an ELF file."""

from collections.abc import Iterator
from itertools import starmap
from math import prod
from struct import calcsize, iter_unpack, unpack_from
from typing import NamedTuple

SECTION = "<IIQQQQIIQQ"
SYMBOL = "<IBBHQQ"
FUNCTION = 2  # a type of symbols
# Of .nv.info, as cuobjdump -elf names them: EIFMT_SVAL and EIATTR_MAX_THREADS.
SIZED, MAX_THREADS = 4, 5


class Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def sections(cubin: bytes) -> dict[str, Section]:
    (start,) = unpack_from("<Q", cubin, 40)
    count, names_index = unpack_from("<HH", cubin, 60)
    table = cubin[start : start + count * calcsize(SECTION)]
    found = list(starmap(Section, iter_unpack(SECTION, table)))
    names = content(cubin, found[names_index])
    return {string(names, section.name): section for section in found}


def content(cubin: bytes, section: Section) -> bytes:
    return cubin[section.offset : section.offset + section.size]


def string(strings: bytes, at: int) -> str:
    return strings[at:].partition(b"\0")[0].decode()


def functions(cubin: bytes) -> dict[str, int]:
    """The places of functions among the symbols."""
    named = sections(cubin)
    strings = content(cubin, named[".strtab"])
    symbols = iter_unpack(SYMBOL, content(cubin, named[".symtab"]))
    return {
        string(strings, name): place
        for place, (name, info, *_) in enumerate(symbols)
        if info % 16 == FUNCTION
    }


def code(cubin: bytes) -> tuple[bytes, dict[int, str]]:
    """The code of the only kernel, and the names of its subroutines by their addresses."""
    named = sections(cubin)
    (text,) = (section for name, section in named.items() if name.startswith(".text."))
    symbols = named[".symtab"]
    strings = content(cubin, named[".strtab"])
    subroutines = {
        address: string(strings, name)
        for name, info, _, _, address, _ in iter_unpack(SYMBOL, content(cubin, symbols))
        if info % 16 == FUNCTION and address > 0  # the kernel is at 0
    }
    return content(cubin, text), subroutines


def most_threads(cubin: bytes) -> dict[str, int]:
    """Of a block, by function: what __launch_bounds__ says."""
    found = {}
    for name, section in sections(cubin).items():
        if name.startswith(".nv.info."):
            for attribute, value in attributes(content(cubin, section)):
                if attribute == MAX_THREADS:
                    found[name.removeprefix(".nv.info.")] = prod(unpack_from("<III", value))
    return found


def attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """A format, an attribute, and 16 bits, which are the value or its size."""
    at = 0
    while at < len(info):
        form, attribute, size = unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED:
            yield attribute, info[at : at + size]
            at += size
