"""A kernel's statements as a program for the machine: operands become columns of numbers."""

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from ptx_on_cpu import parse
from ptx_on_cpu.parse import Entry, Shared, Statement

Widths = Callable[[str], list[int] | None]  # of an opcode's operands, in bytes


class UnknownOpcode(Exception):
    """The machine has no such instruction."""


# As machine/program.h has them.
LANES = 128
MAX_OPERANDS = 10


class Kind(IntEnum):
    PLAIN = 0
    BRANCH = 1
    EXIT = 2
    BARRIER = 3


SPECIAL = ["tid", "ntid", "ctaid", "nctaid", "laneid"]
CONTROL = {"bra": Kind.BRANCH, "ret": Kind.EXIT, "exit": Kind.EXIT, "bar.sync": Kind.BARRIER}

_REGISTER_AND_OFFSET = re.compile(r"\[\s*([\w$%@]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_NUMBER = re.compile(r"0f[0-9A-Fa-f]{8}|0d[0-9A-Fa-f]{16}|-?(?:0x[0-9A-Fa-f]+|\d+)U?")


class Instruction(NamedTuple):
    statement: int
    opcode: str
    kind: Kind
    guard: int
    negated: bool
    target: int
    offset: int
    operands: tuple[int, ...]


class Program(NamedTuple):
    instructions: list[Instruction]
    constants: list[tuple[int, int, int]]
    special_registers: list[tuple[int, int, int]]
    parameters: list[tuple[int, int]]  # sizes and offsets
    register_bytes: int
    parameter_bytes: int
    shared_bytes: int


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


class _Assembler:
    def __init__(self, kernel: Entry, shared: dict[str, Shared], widths: Widths) -> None:
        self.kernel, self.widths_of = kernel, widths
        self.instructions: list[Instruction] = []
        self.columns: dict[str, tuple[int, int]] = {}  # place and width
        self.constants: list[tuple[int, int, int]] = []
        self.special: list[tuple[int, int, int]] = []
        self.register_bytes = 0
        self.symbols: dict[str, int] = {}  # offsets in memory
        self.parameters = []
        offset = 0
        for name, size, alignment in kernel.parameters:
            offset = _aligned(offset, alignment)
            self.symbols[name] = offset
            self.parameters.append((size, offset))
            offset += size
        self.parameter_bytes = offset
        self.shared_bytes = self._place_shared(shared)

    def _place_shared(self, shared: dict[str, Shared]) -> int:
        used = {word for s in self.kernel.statements for word in s.operands if word in shared}
        offset = 0
        for name in sorted(
            used, key=lambda name: shared[name].size == 0
        ):  # the launch's comes last
            offset = _aligned(offset, shared[name].alignment)
            self.symbols[name] = offset
            offset += shared[name].size
        return offset

    def _column(self, name: str, width: int) -> int:
        if name not in self.columns:
            self.columns[name] = self.register_bytes, width
            self.register_bytes += _aligned(width * LANES, 64)
        return self.columns[name][0]

    def _constant(self, bits: int, width: int) -> int:
        bits &= (1 << 8 * width) - 1
        name = f"{bits:#x} {width}"
        if name not in self.columns:
            signed = bits - (1 << 64) if bits >> 63 else bits
            self.constants.append((self._column(name, width), width, signed))
        return self._column(name, width)

    def _special(self, name: str) -> int:
        register, _, axis = name[1:].partition(".")
        if name not in self.columns:
            place = self._column(name, 4)
            self.special.append((place, SPECIAL.index(register), "xyz".index(axis or "x")))
        return self._column(name, 4)

    def _width(self, operand: str) -> int | None:
        """A register's; None if the operand has the width that is wanted of it."""
        return self.kernel.registers.get(operand)

    def _operand(self, operand: str, width: int) -> int:
        if operand in self.kernel.registers:
            return self._column(operand, self.kernel.registers[operand])
        if operand == "_":  # a result that nobody wants
            return self._column(f"_ {width}", width)
        if operand[0] == "%" and operand[1:].partition(".")[0] in SPECIAL:
            return self._special(operand)
        if operand in self.symbols:
            return self._constant(self.symbols[operand], width)
        if not _NUMBER.fullmatch(operand):
            raise ValueError(f"{self.kernel.name}: {operand} is not declared")
        if operand[:2] in ("0f", "0d"):
            if len(operand) != 2 + 2 * width:
                raise ValueError(f"{self.kernel.name}: {operand} is not of {width} bytes")
            return self._constant(int(operand[2:], 16), width)
        return self._constant(int(operand.rstrip("U"), 0), width)

    def _emit(self, at: int, opcode: str, operands: Iterable[int], offset: int = 0) -> None:
        guard = self.kernel.statements[at].guard
        column = self._column(guard.lstrip("@!"), 1) if guard else -1
        self.instructions.append(
            Instruction(at, opcode, Kind.PLAIN, column, "!" in guard, 0, offset, tuple(operands))
        )

    def statement(self, at: int, s: Statement) -> None:
        opcode = s.opcode.removesuffix(".uni")
        if opcode in CONTROL:
            return self._control(at, CONTROL[opcode], s)
        opcode, operands, offset = self._flat(s)
        widths = self.widths_of(opcode)
        if widths is None:
            raise UnknownOpcode(f"{self.kernel.name}: the machine does not know {s}")
        if len(widths) != len(operands):
            raise ValueError(f"{self.kernel.name}: {s} has not {len(widths)} operands")
        # A register may be wider than a number that is loaded, stored or converted.
        may_differ = opcode.startswith(("ld", "st", "cvt"))
        results = len(operands) - 1 if opcode.startswith("ld") else 1
        sign = "s" if re.search(r"\.s\d+(\.a32)?$", opcode) and opcode[0] == "l" else "u"
        if opcode.startswith("cvt"):
            sign = "s" if re.match(r"cvt\.s\d+", opcode) else "u"
        places, after = [], []
        for k, (operand, width) in enumerate(zip(operands, widths, strict=True)):
            own = self._width(operand)
            if own is None or own == width:
                places.append(self._operand(operand, width))
                continue
            is_address = (
                opcode.startswith("st") and k == 0 or opcode.startswith("ld") and k == results
            )
            if not may_differ or is_address:
                raise ValueError(f"{self.kernel.name}: {s}: {operand} has {own} bytes, not {width}")
            part = self._column(f"part {k} {width}", width)
            places.append(part)
            whole = self._column(operand, own)
            if opcode.startswith("st") or k >= results:
                self._emit(at, f"cvt.u{8 * width}.u{8 * own}", (part, whole))
            else:
                after.append((f"cvt.{sign}{8 * own}.{sign}{8 * width}", (whole, part)))
        self._emit(at, opcode, places, offset)
        for conversion, columns in after:
            self._emit(at, conversion, columns)

    def _flat(self, s: Statement) -> tuple[str, list[str], int]:
        """The opcode and the operands without vectors, addresses and pairs of results."""
        opcode, operands, offset = s.opcode, [], 0
        for k, operand in enumerate(s.operands):
            if operand[0] == "{":
                parts = [part.strip() for part in operand[1:-1].split(",")]
                operands += parts
                if opcode.startswith("mov."):
                    name = "unpack" if k == 0 else "pack"
                    count = str(len(parts)) if len(parts) != 2 else ""
                    opcode = name + count + opcode.removeprefix("mov")
            elif operand[0] == "[":
                base, plus = _REGISTER_AND_OFFSET.fullmatch(operand).groups()
                operands.append(base)
                offset = int(plus or "0", 0)
                if self._width(base) == 4 or (".shared" in opcode and self._width(base) is None):
                    opcode += ".a32"
            elif "|" in operand:
                operands += operand.split("|")
            else:
                operands.append(operand)
                if k == 0 and opcode.startswith("shfl"):
                    operands.append("_")
        return opcode, operands, offset

    def _control(self, at: int, kind: Kind, s: Statement) -> None:
        guard = self._column(s.guard.lstrip("@!"), 1) if s.guard else -1
        self.instructions.append(Instruction(at, s.opcode, kind, guard, "!" in s.guard, 0, 0, ()))

    def program(self) -> Program:
        firsts = []  # instruction of each statement
        for at, s in enumerate(self.kernel.statements):
            firsts.append(len(self.instructions))
            self.statement(at, s)
        firsts.append(len(self.instructions))
        for k, i in enumerate(self.instructions):
            if i.kind == Kind.BRANCH:
                (label,) = self.kernel.statements[i.statement].operands
                self.instructions[k] = i._replace(target=firsts[self.kernel.labels[label]])
        return Program(
            self.instructions,
            self.constants,
            self.special,
            self.parameters,
            self.register_bytes,
            self.parameter_bytes,
            self.shared_bytes,
        )


def assemble(kernel: Entry, shared: dict[str, Shared], widths: Widths) -> Program:
    return _Assembler(kernel, shared, widths).program()


__all__ = ["assemble", "parse"]
