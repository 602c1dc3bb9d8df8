"""The columns of a kernel's operands: one number for each thread."""

import re

from tests.ptx_on_cpu.parse import Entry, Variable

LANES = 128  # of machine/program.h
SPECIAL = ["tid", "ntid", "ctaid", "nctaid"]  # likewise

_WORD = re.compile(r"[\w$]+")
_NUMBER = re.compile(r"0f[0-9A-Fa-f]{8}|0d[0-9A-Fa-f]{16}|-?(?:0x[0-9A-Fa-f]+|\d+)U?")


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


class Columns:
    """The places in bytes of registers, constants and special registers among the columns, and of
    parameters, shared variables and those of the module in their memories."""

    def __init__(
        self, kernel: Entry, shared: dict[str, Variable], variables: dict[str, Variable]
    ) -> None:
        self.kernel = kernel
        self.places: dict[str, int] = {}
        self.register_bytes = 0
        self.constants: list[tuple[int, int, int]] = []  # column, width, bits
        self.special_registers: list[tuple[int, int, int]] = []  # column, which, axis
        self.parameters: list[tuple[int, int]] = []  # size, offset
        self.parameter_bytes = 0
        self.shared_bytes = 0
        self.variables: list[tuple[int, int]] = []  # column of the address, offset
        self.variable_bytes = 0
        self._symbols: dict[str, int] = {}
        for name, size, alignment in kernel.parameters:
            self._symbols[name] = _aligned(self.parameter_bytes, alignment)
            self.parameters.append((size, self._symbols[name]))
            self.parameter_bytes = self._symbols[name] + size
        words = {word for s in kernel.statements for o in s.operands for word in _WORD.findall(o)}
        for name in sorted(words & variables.keys()):
            offset = _aligned(self.variable_bytes, variables[name].alignment)
            self.variables.append((self.named(name, 8), offset))
            self.variable_bytes = offset + variables[name].size
        used = words & shared.keys()
        # Dynamic shared memory, of size 0 here, comes last.
        for name in sorted(used, key=lambda name: shared[name].size == 0):
            self._symbols[name] = _aligned(self.shared_bytes, shared[name].alignment)
            self.shared_bytes = self._symbols[name] + shared[name].size

    def register_width(self, operand: str) -> int | None:
        """In bytes; None for operands that take the width of the instruction."""
        return self.kernel.registers.get(operand)

    def named(self, name: str, width: int) -> int:
        if name not in self.places:
            self.places[name] = self.register_bytes
            self.register_bytes += _aligned(width * LANES, 64)
        return self.places[name]

    def of(self, operand: str, width: int) -> int:
        own = self.register_width(operand)
        if own is not None:
            return self.named(operand, own)
        if operand == "_":  # a result that nobody wants
            return self.named(f"_ {width}", width)
        if operand[0] == "%" and operand[1:].partition(".")[0] in SPECIAL:
            return self._special(operand)
        if operand in self.places:
            return self.places[operand]
        if operand in self._symbols:
            return self._constant(self._symbols[operand], width)
        if not _NUMBER.fullmatch(operand):
            raise ValueError(f"{self.kernel.name}: {operand} is not declared")
        if operand[:2] not in ("0f", "0d"):
            return self._constant(int(operand.rstrip("U"), 0), width)
        if len(operand) != 2 + 2 * width:
            raise ValueError(f"{self.kernel.name}: {operand} is not of {width} bytes")
        return self._constant(int(operand[2:], 16), width)

    def _constant(self, bits: int, width: int) -> int:
        bits &= (1 << 8 * width) - 1
        name = f"{bits:#x} {width}"
        if name not in self.places:
            signed = bits - (1 << 64) if bits >> 63 else bits
            self.constants.append((self.named(name, width), width, signed))
        return self.places[name]

    def _special(self, name: str) -> int:
        if name not in self.places:
            register, _, axis = name[1:].partition(".")
            number = SPECIAL.index(register), "xyz".index(axis or "x")
            self.special_registers.append((self.named(name, 4), *number))
        return self.places[name]
