"""A kernel's statements as a program for the machine."""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from tests.ptx_on_cpu.columns import Columns
from tests.ptx_on_cpu.parse import Entry, Statement, Variable

Widths = Callable[[str], list[int] | None]  # of an opcode's operands, in bytes


class UnknownOpcode(Exception):
    """The machine has no such instruction."""


class Kind(IntEnum):
    """As in machine/program.h."""

    PLAIN = 0
    BRANCH = 1
    EXIT = 2
    BARRIER = 3


MAX_OPERANDS = 10  # likewise

CONTROL = {"bra": Kind.BRANCH, "ret": Kind.EXIT, "exit": Kind.EXIT, "bar.sync": Kind.BARRIER}

_ADDRESS = re.compile(r"\[\s*([\w$%@]+)\s*(?:\+\s*(-?\w+))?\s*\]")


class Instruction(NamedTuple):
    statement: int
    opcode: str
    kind: Kind
    guard: int  # a column, or -1
    negated: bool
    target: int
    offset: int
    operands: tuple[int, ...]


class Program(NamedTuple):
    instructions: list[Instruction]
    columns: Columns


class _Assembler:
    def __init__(self, kernel: Entry, columns: Columns, widths: Widths) -> None:
        self.kernel, self.columns, self.widths_of = kernel, columns, widths
        self.instructions: list[Instruction] = []

    def program(self) -> Program:
        firsts = []  # instruction of each statement
        for at, s in enumerate(self.kernel.statements):
            firsts.append(len(self.instructions))
            opcode = s.opcode.removesuffix(".uni")
            kind = CONTROL.get(opcode)
            if kind is None or (kind is Kind.BARRIER and s.operands != ("0",)):
                self._plain(at, s)
            else:
                self._emit(at, s.opcode, kind=kind)
        firsts.append(len(self.instructions))
        for k, i in enumerate(self.instructions):
            if i.kind == Kind.BRANCH:
                (label,) = self.kernel.statements[i.statement].operands
                self.instructions[k] = i._replace(target=firsts[self.kernel.labels[label]])
        return Program(self.instructions, self.columns)

    def _emit(
        self,
        at: int,
        opcode: str,
        operands: tuple[int, ...] = (),
        offset: int = 0,
        kind: Kind = Kind.PLAIN,
    ) -> None:
        guard = self.kernel.statements[at].guard
        column = self.columns.of(guard.lstrip("@!"), 1) if guard else -1
        self.instructions.append(
            Instruction(at, opcode, kind, column, "!" in guard, 0, offset, operands)
        )

    def _plain(self, at: int, s: Statement) -> None:
        opcode, operands, offset = self._flat(s)
        widths = self.widths_of(opcode)
        if widths is None:
            raise UnknownOpcode(f"{self.kernel.name}: the machine does not know {s}")
        if len(widths) != len(operands):
            raise ValueError(f"{self.kernel.name}: {s} has not {len(widths)} operands")
        wider = {k: name for k, name in enumerate(operands) if self._differs(name, widths[k])}
        sources, results = self._of_any_width(opcode, len(operands))
        if others := wider.keys() - sources - results:
            name, width = operands[min(others)], widths[min(others)]
            own = self.columns.register_width(name)
            raise ValueError(f"{self.kernel.name}: {s}: {name} has {own} bytes, not {width}")
        sign = "s" if re.match(r"(ld.*|cvt)\.s\d+", opcode) else "u"
        places = [
            self.columns.named(f"part {k} {width}", width)
            if k in wider
            else self.columns.of(name, width)
            for k, (name, width) in enumerate(zip(operands, widths, strict=True))
        ]

        def resize(k: int) -> tuple[str, str, int, int]:
            own = self.columns.register_width(wider[k])
            bits, own_bits = f"{8 * widths[k]}", f"{8 * own}"
            return bits, own_bits, places[k], self.columns.of(wider[k], own)

        for k in wider.keys() & sources:
            bits, own_bits, part, whole = resize(k)
            self._emit(at, f"cvt.u{bits}.u{own_bits}", (part, whole))
        self._emit(at, opcode, tuple(places), offset)
        for k in wider.keys() & results:
            bits, own_bits, part, whole = resize(k)
            self._emit(at, f"cvt.{sign}{own_bits}.{sign}{bits}", (whole, part))

    def _differs(self, operand: str, width: int) -> bool:
        return self.columns.register_width(operand) not in (None, width)

    @staticmethod
    def _of_any_width(opcode: str, count: int) -> tuple[set[int], set[int]]:
        """Sources and results whose registers may be wider than what is stored, loaded or
        converted (PTX ISA 9.0, section 9.4.1)."""
        if opcode.startswith("st."):
            return set(range(1, count)), set()
        if opcode.startswith("ld."):
            return set(), set(range(count - 1))
        return ({1}, {0}) if opcode.startswith("cvt.") else (set(), set())

    def _flat(self, s: Statement) -> tuple[str, list[str], int]:
        """The opcode and the operands without vectors, addresses and pairs of results."""
        opcode, operands, offset = s.opcode, [], 0
        for k, operand in enumerate(s.operands):
            if operand[0] == "{":
                parts = [part.strip() for part in operand[1:-1].split(",")]
                operands += parts
                if opcode.startswith("mov."):
                    opcode = ("unpack" if k == 0 else "pack") + opcode.removeprefix("mov")
            elif operand[0] == "[":
                base, plus = _ADDRESS.fullmatch(operand).groups()
                operands.append(base)
                if offset:
                    raise ValueError(f"{self.kernel.name}: {s}: the first address has an offset")
                offset = int(plus or "0", 0)
                width = self.columns.register_width(base)
                if width == 4 or (".shared" in opcode and width is None):
                    opcode += ".a32"
            elif "|" in operand:
                operands += operand.split("|")
            else:
                operands.append(operand)
                if k == 0 and opcode.startswith("shfl"):
                    operands.append("_")
        if opcode.startswith(("cp.async.ca", "cp.async.cg")):
            to, source, size, *read = operands  # without `read`, all bytes are
            opcode, operands = f"{opcode}.{int(size, 0)}", [to, source, *(read or [size])]
        return opcode, operands, offset


def assemble(
    kernel: Entry, shared: dict[str, Variable], variables: dict[str, Variable], widths: Widths
) -> Program:
    return _Assembler(kernel, Columns(kernel, shared, variables), widths).program()
