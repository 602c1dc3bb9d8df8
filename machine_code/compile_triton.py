"""``python -m machine_code.compile_triton ARCHITECTURE`` prints in JSON what Triton makes."""

import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import prod
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget

from gelu_kernels import backend
from gelu_kernels.operators.table import CORE
from gelu_kernels.operators.types import Extent
from gelu_kernels.triton_kernels import launch
from machine_code import elf, sass
from machine_code.cases import CASES, Case


def arguments(case: Case, first: int = 0) -> list[object]:
    """For a large tensor that begins at an element of its memory; with a bias, and in a family
    whose operands may be halves, for a large matrix with gaps between the rows."""
    may_be_halves = any(op.halves for op in CORE if op.family == case.operator.family)
    has_gaps = case.biased or may_be_halves
    shape = (4096, 8192) if has_gaps else (2**24,)
    dtypes = {Extent.BITS: torch.uint8, Extent.SCALAR: torch.int64}

    def tensor(extent: Extent) -> Tensor:
        dtype = dtypes.get(extent, getattr(torch, case.dtype))
        if extent is not Extent.ELEMENTS:
            return torch.empty(extent.shape((4096, 4096)), dtype=dtype, device="meta")
        memory = torch.empty(first + prod(shape), dtype=dtype, device="meta")
        t = memory[first:].view(shape)
        return t.chunk(2, -1)[0] if has_gaps else t

    tensors = {name: tensor(extent) for name, extent in case.operator.inputs.items()}
    if not case.biased:
        tensors |= {name: None for name in ("bias", "weight") if name in tensors}
    return [*tensors.values(), *filter(None, [case.gate])]


def started(case: Case, first: int = 0) -> list[launch.Specialization]:
    """What an operator would start."""
    kernels = []

    def record(op: str, kernel: launch.Specialization, device: torch.device) -> launch.Start:
        kernels.append(kernel)
        return lambda grid, tensors, integers: None

    with mock.patch.multiple(launch, _compiled=record, _starts={}):
        backend.TRITON[case.op](*arguments(case, first))
    return kernels


def specializations(architecture: str) -> dict[str, launch.Specialization]:
    """By the names that a test reports; for AMD's GPUs, some of them."""
    cases = [case for case in CASES if case.backend == "triton"]
    if not is_nvidia(architecture):
        cases = [case for case in cases if case.dtype in ("float32", "bfloat16")]
    kernels = {}
    for case in cases:
        kernels[case.name], *add = started(case)
        if add:
            (kernels[f"add_partial_sums {case.dtype}"],) = add
    # Must fail the checks.
    unaligned = Case("gate_forward", "normal", "float64", False, "triton")
    (kernels[f"unaligned {unaligned.name}"],) = started(unaligned, first=1)
    return kernels


def is_nvidia(architecture: str) -> bool:
    return architecture.startswith("sm_")


def compile_for(architecture: str, kernel: launch.Specialization) -> dict:
    if not is_nvidia(architecture):
        return {
            "assembly": launch.compile(kernel, GPUTarget("hip", architecture, 64)).asm["amdgcn"]
        }
    asm = launch.compile(kernel, GPUTarget("cuda", int(architecture[3:]), 32)).asm
    compiled = asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(compiled)
        ((registers, stack),) = sass.resources(Path(file.name)).values()
    code, subroutines = elf.code(compiled)
    return {
        "code": code.hex(),
        "subroutines": subroutines,
        "registers": registers,
        "stack": stack,
        "threads": kernel.threads,
        "pair_sums": sum(sass.pair_sums(asm["ptx"]).values()),
    }


def main(architecture: str) -> None:
    kernels = specializations(architecture)
    with ProcessPoolExecutor(min(4, os.cpu_count())) as pool:
        compiled = pool.map(partial(compile_for, architecture), kernels.values())
    json.dump(dict(zip(kernels, compiled, strict=True)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
