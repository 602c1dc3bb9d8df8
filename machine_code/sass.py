"""The instructions of NVIDIA's GPUs, as the disassembler in Triton's wheel prints them."""

import importlib.util
import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

INSTRUCTION_BYTES = 16

Fields = tuple[str, str, str]  # of an instruction: what ``decode`` takes


@dataclass(frozen=True)
class Instruction:
    opcode: str
    operands: str
    predicate: str
    target: int | None  # index of the instruction to which it may jump

    @cached_property
    def name(self) -> str:
        return self.opcode.partition(".")[0]

    @cached_property
    def falls_through(self) -> bool:
        # "BRA P1, 0x10" and "BRA.U UP0, 0x10" have a condition among their operands.
        conditional = self.predicate or (self.name == "BRA" and "," in self.operands)
        jumps = self.name in ("BRA", "EXIT", "RET") or self.is_jumping_call
        return bool(conditional) or not jumps

    @property
    def is_jumping_call(self) -> bool:
        """For sm_80, some jumps are written as calls; only subroutines return."""
        return self.name == "CALL" and self.target is not None

    @property
    def is_call(self) -> bool:
        return self.name == "CALL" and self.target is None


@dataclass(frozen=True)
class Kernel:
    name: str  # demangled, without namespaces
    instructions: list[Instruction] = field(repr=False)
    registers: int
    stack: int  # bytes of local memory of a thread, spilled registers included
    threads: int = 256  # of a block, at the most


def missing_triton() -> list[str]:
    return [] if importlib.util.find_spec("triton") else ["triton"]


def tool(name: str) -> str:
    """One of CUDA's programs in Triton's wheel."""
    from triton import knobs  # takes a third of a second

    return getattr(knobs.nvidia, name).path


def run(command: list, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"
    return done.stdout


def resources(cubin: Path) -> dict[str, tuple[int, int]]:
    """By function: registers, and bytes of the stack."""
    usage = run([tool("cuobjdump"), "-res-usage", cubin])
    found = re.findall(r"Function (\w+):\n +REG:(\d+) STACK:(\d+)", usage)
    return {name: (int(registers), int(stack)) for name, registers, stack in found}


def disassemble(cubin: Path, *options: str) -> dict[str, list[Fields]]:
    """Every function."""
    _, functions = json.loads(run([tool("nvdisasm"), "-json", *options, cubin]))
    return {
        function["function-name"]: [
            tuple(instruction.get(field, "") for field in ("opcode", "operands", "predicate"))
            for instruction in function["sass-instructions"]
        ]
        for function in functions
    }


def disassemble_together(
    codes: list[bytes], subroutines: list[dict[int, str]], architecture: str
) -> list[list[Fields]]:
    """Kernels in one run, as nvdisasm takes a third of a second to start."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(b"".join(codes))
        options = "--binary", architecture.replace("sm_", "SM")
        (instructions,) = disassemble(Path(file.name), *options).values()
    kernels, start = [], 0
    for code, names in zip(codes, subroutines, strict=True):
        end = start + len(code)
        part = instructions[start // INSTRUCTION_BYTES : end // INSTRUCTION_BYTES]
        kernels.append([relocate(fields, start, names) for fields in part])
        start = end
    return kernels


def relocate(fields: Fields, start: int, subroutines: dict[int, str]) -> Fields:
    """As the instruction reads in a kernel that starts there."""
    opcode, operands, predicate = fields
    if address := jump_address(opcode, operands):
        to = int(address[1], 16) - start
        called = subroutines.get(to) if opcode.startswith("CALL") else None
        operands = operands[: address.start(1) - 2] + (called or hex(to))
    return opcode, operands, predicate


def jump_address(opcode: str, operands: str) -> re.Match | None:
    jumps = opcode.partition(".")[0] in ("BRA", "CALL", "BSSY")
    return re.search(r"(?:^|,)0x([0-9a-f]+)$", operands) if jumps else None


@cache  # many are the same
def decode(opcode: str, operands: str, predicate: str) -> Instruction:
    address = jump_address(opcode, operands)
    target = int(address[1], 16) // INSTRUCTION_BYTES if address else None
    # P2R has no guard there, but PR, its operand.
    guard = "" if predicate in ("@PT", "PR") else predicate
    return Instruction(opcode, operands, guard, target)


def pair_sums(ptx: str) -> dict[str, int]:
    """The number of packed additions of two floats that the source asks for, by kernel."""
    _, *entries = re.split(r"\.entry (\w+)", ptx)
    return {
        name: len(re.findall(r"\b(?:add|sub)[.\w]*\.f32x2\b", body))
        for name, body in zip(entries[::2], entries[1::2], strict=True)
    }
