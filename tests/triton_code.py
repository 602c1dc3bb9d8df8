"""What Triton makes of its kernels: compiled without a GPU, for NVIDIA's disassembled as well.

What was compiled is kept in build/sass until a source or a tool changes.
"""

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable

import cubin
from cubin import ROOT, Kernel

TESTS = ROOT / "tests"


def missing_triton() -> list[str]:
    return [] if importlib.util.find_spec("triton") else ["triton"]


def missing_tools() -> list[str]:
    return missing_triton() + cubin.missing_tools(compilers=[])


def compile_kernels(architecture: str, tools: list[str], finish: Callable[[dict], dict]) -> dict:
    """By name, what ``finish`` makes of what was compiled."""
    import triton  # takes a third of a second

    sources = [
        *(TESTS / f"{name}.py" for name in ("triton_code", "compile_triton", "elf", "cases")),
        *sorted((ROOT / "triton_kernels").rglob("*.py")),
    ]
    key = cubin.fingerprint(sources, [triton.__version__, *map(cubin.version, tools)])
    return cubin.keep(f"triton.{architecture}", key, lambda: finish(run_compiler(architecture)))


def run_compiler(architecture: str) -> dict[str, dict]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    with tempfile.TemporaryDirectory() as folder:
        environment["TRITON_CACHE_DIR"] = folder
        command = [sys.executable, TESTS / "compile_triton.py", architecture]
        return json.loads(cubin.run(command, env=environment).stdout)


def nvidia_kernels(architecture: str) -> list[Kernel]:
    def disassembled(compiled: dict[str, dict]) -> dict[str, list]:
        codes = [bytes.fromhex(x["code"]) for x in compiled.values()]
        subroutines = [
            {int(at): y for at, y in x["subroutines"].items()} for x in compiled.values()
        ]
        instructions = cubin.disassemble_together(codes, subroutines, architecture)
        return {
            name: [x["registers"], x["stack"], x["pair_sums"], fields]
            for (name, x), fields in zip(compiled.items(), instructions, strict=True)
        }

    kept = compile_kernels(architecture, [cubin.disassembler()], disassembled)
    spills = 0  # they count as part of the stack
    return [
        Kernel(name, [cubin.decode(*i) for i in instructions], registers, stack, spills, pairs)
        for name, (registers, stack, pairs, instructions) in kept.items()
    ]


def amd_code(architecture: str) -> dict[str, str]:
    """The assembly of the kernels."""
    return compile_kernels(
        architecture, [], lambda kernels: {name: x["assembly"] for name, x in kernels.items()}
    )
