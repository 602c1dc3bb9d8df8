"""CUDA files compiled and disassembled: every kernel with its instructions and its resources.

What was compiled is kept in build/sass until a source, an option or a tool changes.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "build" / "sass"
DISASSEMBLER = "nvidia-cuda-nvdisasm"  # in requirements-test.txt
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
        """For sm_80, some jumps are written as calls; only those of subroutines return."""
        return self.name == "CALL" and self.target is not None

    @property
    def is_call(self) -> bool:
        return self.name == "CALL" and self.target is None


@dataclass(frozen=True)
class Kernel:
    name: str  # demangled, without namespaces
    instructions: list[Instruction] = field(repr=False)
    registers: int
    stack: int  # bytes of local memory a thread
    spills: int  # bytes stored there for want of registers
    pair_sums: int = 0  # additions of two floats at once that the compiler was asked for, in PTX


def disassembler() -> str | None:
    try:
        files = metadata.files(DISASSEMBLER) or []
    except metadata.PackageNotFoundError:
        files = []
    in_wheel = (str(file.locate()) for file in files if file.name == "nvdisasm")
    return shutil.which("nvdisasm") or next(in_wheel, None)


def missing_tools(compilers: Sequence[str] = ("nvcc", "c++filt")) -> list[str]:
    tools = {name: shutil.which(name) for name in compilers}
    tools[f"nvdisasm (pip install {DISASSEMBLER})"] = disassembler()
    return [name for name, path in tools.items() if not path]


def options() -> list[str]:
    """Those of the build."""
    cmake = (ROOT / "CMakeLists.txt").read_text()
    standard = re.search(r"CUDA_STANDARD (\d+)", cmake)[1]
    found = re.search(r"target_compile_options\(cuda_kernels PRIVATE (.*?)\)", cmake, re.DOTALL)
    return [f"-std=c++{standard}", *found[1].split()]


def compile_kernels(source: Path, architecture: str, choice: list[str]) -> list[Kernel]:
    command = ["nvcc", f"-I{ROOT}", f"-arch={architecture}", *choice, "-cubin", "-Xptxas=-v"]
    headers = sorted(path for path in (ROOT / "csrc").rglob("*.[hc]*") if path.suffix != ".cpp")
    key = fingerprint([source, *headers], [*command, version("nvcc"), version(disassembler())])
    kept = keep(f"{source.stem}.{architecture}", key, lambda: compile_file(source, command))
    resources = {name: numbers for name, *numbers in kept["resources"]}
    names = demangle(list(resources))
    return [
        Kernel(names[name], [decode(*i) for i in instructions], *resources[name])
        for name, instructions in kept["functions"].items()
    ]


def version(tool: str) -> str:
    return subprocess.check_output([tool, "--version"], text=True)


def fingerprint(sources: list[Path], words: list[str]) -> str:
    digest = hashlib.sha256(repr(words).encode())
    for path in [Path(__file__), *sources]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def keep(name: str, key: str, make: Callable[[], dict]) -> dict:
    """What was made under this key, or is now."""
    stored = CACHE / f"{name}.json"
    kept = json.loads(stored.read_text()) if stored.exists() else {}
    if kept.get("key") != key:
        kept = {"key": key, "made": make()}
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=CACHE, delete=False) as file:
            json.dump(kept, file)
        Path(file.name).rename(stored)
    return kept["made"]


def pair_sums(ptx: str) -> int:
    return len(re.findall(r"\b(?:add|sub)[.\w]*\.f32x2\b", ptx))


def compile_file(source: Path, command: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "cubin"
        log = run([*command, "--keep", "--keep-dir", folder, "-o", cubin, source]).stderr
        functions = disassemble(cubin)
        ptx = (Path(folder) / f"{source.stem}.ptx").read_text()
    report = re.compile(
        r"Function properties for (\w+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores.*\n"
        r".*Used (\d+) registers"
    )
    _, *entries = re.split(r"\.entry (\w+)", ptx)
    sums = {name: pair_sums(body) for name, body in zip(entries[::2], entries[1::2], strict=True)}
    resources = [
        (name, int(registers), int(stack), int(spills), sums.get(name, 0))
        for name, stack, spills, registers in report.findall(log)
    ]
    return {"resources": resources, "functions": functions}


def disassemble(cubin: Path, *options: str) -> dict[str, list[Fields]]:
    """Every function."""
    _, functions = json.loads(run([disassembler(), "-json", *options, cubin]).stdout)
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
    """Kernels in one run, as nvdisasm takes most of a second to start."""
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


def run(command: list, **options: Any) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"
    return done


def demangle(names: list[str]) -> dict[str, str]:
    """map_rows<Forward<Normal, fp32>, fp32, false, 4>"""
    given = "\n".join(names)
    lines = subprocess.check_output(["c++filt"], input=given, text=True).splitlines()
    clutter = re.compile(r"^void |\(anonymous namespace\)::|\w+::|\((?!anonymous)[^<]*\)$")
    return {name: clutter.sub("", line) for name, line in zip(names, lines, strict=True)}


def jump_address(opcode: str, operands: str) -> re.Match | None:
    jumps = opcode.partition(".")[0] in ("BRA", "CALL", "BSSY")
    return re.search(r"(?:^|,)0x([0-9a-f]+)$", operands) if jumps else None


@cache  # many are the same
def decode(opcode: str, operands: str, predicate: str) -> Instruction:
    address = jump_address(opcode, operands)
    target = int(address[1], 16) // INSTRUCTION_BYTES if address else None
    return Instruction(opcode, operands, "" if predicate == "@PT" else predicate, target)
