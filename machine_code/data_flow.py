"""How loaded numbers flow through the instructions of a kernel."""

import re
from functools import cache

from machine_code.control_flow import Code
from machine_code.sass import Instruction

REGISTER = re.compile(r"\b(U?[RP])(\d+)\b")

# Instructions whose result is a pair of registers.
PAIRS = re.compile(r"D(ADD|FMA|MUL)|F(ADD|FMA|MUL)2|.*\.(WIDE|64)\b|.*\.F64\b")


@cache
def registers(text: str) -> frozenset[str]:
    return frozenset(map("".join, REGISTER.findall(text)))


def operands_of(instruction: Instruction) -> list[str]:
    """An address of sm_80 follows its register without a comma."""
    return re.split(r",|(?=\[)", instruction.operands)


def written_operands(instruction: Instruction) -> list[str]:
    """The first operand, and the next one if it is a predicate: a carry, or the other result of a
    comparison. That of a copy into shared memory is an address."""
    first, *others = operands_of(instruction)
    if instruction.name in ("BRA", "EXIT", "LDGSTS") or not REGISTER.fullmatch(first):
        return []
    return [first, *(x for x in others[:1] if re.fullmatch(r"U?P[\dT]", x))]


@cache  # many are the same
def written(instruction: Instruction) -> frozenset[str]:
    """The registers that its result is in."""
    size = 4 if ".128" in instruction.opcode else 2 if PAIRS.match(instruction.opcode) else 1
    found = filter(None, map(REGISTER.fullmatch, written_operands(instruction)))
    return frozenset(
        f"{kind}{int(number) + i}"
        for kind, number in (match.groups() for match in found)
        for i in range(size if kind.endswith("R") else 1)
    )


@cache
def read(instruction: Instruction) -> frozenset[str]:
    """The registers that its result depends on; of several next to each other, the first."""
    operands = operands_of(instruction)[len(written_operands(instruction)) :]
    return registers(",".join([instruction.predicate, *operands]))


def branches_on_loads(path: Code) -> int:
    """The number of branches on loaded numbers, where threads of a warp may diverge. The
    path may be once round a loop, with numbers from the round before."""
    loaded: set[str] = set()
    for _ in range(2):
        branches = 0
        for instruction in path:
            depends = not loaded.isdisjoint(read(instruction))
            branches += depends and instruction.name == "BRA"
            if instruction.name in ("LDG", "LDS") or depends:
                loaded |= written(instruction)
            elif not instruction.predicate:
                loaded -= written(instruction)
    return branches
