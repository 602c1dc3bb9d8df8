"""The code in a cubin, which is an ELF file."""

from itertools import starmap
from struct import calcsize, iter_unpack, unpack_from
from typing import NamedTuple

SECTION = "<IIQQQQIIQQ"
SYMBOL = "<IBBHQQ"
FUNCTION = 2  # a type of symbols


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


def code(cubin: bytes) -> tuple[bytes, dict[int, str]]:
    """The code of the only kernel, and the names of its subroutines by their addresses."""
    (start,) = unpack_from("<Q", cubin, 40)
    count, names_index = unpack_from("<HH", cubin, 60)
    table = cubin[start : start + count * calcsize(SECTION)]
    sections = list(starmap(Section, iter_unpack(SECTION, table)))

    def content(section: Section) -> bytes:
        return cubin[section.offset : section.offset + section.size]

    def string(strings: Section, at: int) -> str:
        return content(strings)[at:].partition(b"\0")[0].decode()

    named = {string(sections[names_index], section.name): section for section in sections}
    (text,) = (section for name, section in named.items() if name.startswith(".text."))
    symbols = named[".symtab"]
    subroutines = {
        address: string(sections[symbols.link], name)
        for name, info, _, _, address, _ in iter_unpack(SYMBOL, content(symbols))
        if info % 16 == FUNCTION and address > 0  # the kernel is at 0
    }
    return content(text), subroutines
