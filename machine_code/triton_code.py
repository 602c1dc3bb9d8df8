"""Triton's kernels, compiled without a GPU and, for NVIDIA's, disassembled."""

import json
import os
import sys
from functools import cache
from pathlib import Path

from machine_code.sass import Kernel, decode, disassemble_together, missing_triton, run

ROOT = Path(__file__).parent.parent


def missing_tools() -> list[str]:
    return missing_triton()


@cache  # Triton itself keeps what it compiled, beyond this process
def compile_kernels(architecture: str) -> dict[str, dict]:
    """The output of compile_triton, by kernel."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(ROOT / "build" / "triton")
    command = [sys.executable, "-m", "machine_code.compile_triton", architecture]
    return json.loads(run(command, env=environment, cwd=ROOT))


@cache
def kernels(architecture: str) -> list[Kernel]:
    compiled = compile_kernels(architecture)
    codes = [bytes.fromhex(x["code"]) for x in compiled.values()]
    subroutines = [{int(at): y for at, y in x["subroutines"].items()} for x in compiled.values()]
    instructions = disassemble_together(codes, subroutines, architecture)
    return [
        Kernel(
            name,
            [decode(*fields) for fields in code],
            *(x["registers"], x["stack"], x["threads"]),
        )
        for (name, x), code in zip(compiled.items(), instructions, strict=True)
    ]


def all_pair_sums(architecture: str) -> dict[str, int]:
    return {name: x["pair_sums"] for name, x in compile_kernels(architecture).items()}


def amd_code(architecture: str) -> dict[str, str]:
    """The assembly of the kernels."""
    return {name: x["assembly"] for name, x in compile_kernels(architecture).items()}
