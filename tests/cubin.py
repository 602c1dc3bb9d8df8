"""CUDA files compiled and disassembled: every kernel with its instructions and its resources.

What was compiled is kept in build/sass until a source, an option or a tool changes.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "build" / "sass"
DISASSEMBLER = "nvidia-cuda-nvdisasm"  # in requirements.txt
INSTRUCTION_BYTES = 16


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


def disassembler() -> str | None:
    try:
        files = metadata.files(DISASSEMBLER) or []
    except metadata.PackageNotFoundError:
        files = []
    in_wheel = (str(file.locate()) for file in files if file.name == "nvdisasm")
    return shutil.which("nvdisasm") or next(in_wheel, None)


def missing_tools() -> list[str]:
    tools = {name: shutil.which(name) for name in ("nvcc", "c++filt")}
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
    stored = CACHE / f"{source.stem}.{architecture}.json"
    key = fingerprint(source, command)
    kept = json.loads(stored.read_text()) if stored.exists() else {}
    if kept.get("key") != key:
        kept = {"key": key, **disassemble(source, command)}
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=CACHE, delete=False) as file:
            json.dump(kept, file)
        Path(file.name).rename(stored)
    resources = {name: numbers for name, *numbers in kept["resources"]}
    names = demangle(list(resources))
    return [
        Kernel(names[name], [decode(*i) for i in instructions], *resources[name])
        for name, instructions in kept["functions"].items()
    ]


def fingerprint(source: Path, command: list[str]) -> str:
    tools = ["nvcc", disassembler()]
    versions = [subprocess.check_output([tool, "--version"], text=True) for tool in tools]
    headers = sorted(path for path in (ROOT / "csrc").rglob("*.[hc]*") if path.suffix != ".cpp")
    digest = hashlib.sha256(repr([command, versions]).encode())
    for path in [Path(__file__), source, *headers]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def disassemble(source: Path, command: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "cubin"
        log = run([*command, "-o", cubin, source]).stderr
        _, functions = json.loads(run([disassembler(), "-json", cubin]).stdout)
    report = re.compile(
        r"Function properties for (\w+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores.*\n"
        r".*Used (\d+) registers"
    )
    fields = ["opcode", "operands", "predicate"]
    return {
        "resources": [
            (name, int(registers), int(stack), int(spills))
            for name, stack, spills, registers in report.findall(log)
        ],
        "functions": {
            function["function-name"]: [
                [instruction.get(field, "") for field in fields]
                for instruction in function["sass-instructions"]
            ]
            for function in functions
        },
    }


def run(command: list) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"
    return done


def demangle(names: list[str]) -> dict[str, str]:
    """map_rows<Forward<Normal, fp32>, fp32, false, 4>"""
    given = "\n".join(names)
    lines = subprocess.check_output(["c++filt"], input=given, text=True).splitlines()
    clutter = re.compile(r"^void |\(anonymous namespace\)::|\w+::|\((?!anonymous)[^<]*\)$")
    return {name: clutter.sub("", line) for name, line in zip(names, lines, strict=True)}


@cache  # many are the same
def decode(opcode: str, operands: str, predicate: str) -> Instruction:
    address = re.search(r"(?:^|,)0x([0-9a-f]+)$", operands)
    jumps = opcode.partition(".")[0] in ("BRA", "CALL", "BSSY")
    target = int(address[1], 16) // INSTRUCTION_BYTES if address and jumps else None
    return Instruction(opcode, operands, "" if predicate == "@PT" else predicate, target)
