"""``python -m machine_code.compile_triton ARCHITECTURE`` prints in JSON what Triton makes.

It is a program of its own because Triton does not compile in a process in which it interprets, as
it may in that of the tests.
"""

import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget

from gelu_kernels.triton_kernels import glu_operators, launch, operators, soi_operators
from gelu_kernels.triton_kernels.configurations import (
    OCTETS,
    column_sum_tiles,
    map_tiles,
    soi_tiles,
)
from machine_code import elf, sass
from machine_code.cases import CASES, Case

ORDERS = {
    "gate_forward": "value",
    "gate_backward": "derivative",
    "gate_double_backward": "second_derivative",
    "glu_forward": "value",
}


def specialize(case: Case, aligned: bool = True) -> launch.Specialization:
    """For a large tensor; with a bias and for a GLU, whose operands may be halves, for a large
    matrix."""
    gate, dtype = case.gate, getattr(torch, case.dtype)
    is_matrix = case.biased or case.op.startswith("glu_")
    rows, columns = (4096, 4096) if is_matrix else (1, 2**24)
    all_consecutive = (True,) * 5
    if case.op == "gate_backward_bias":
        tiles = column_sum_tiles(rows, columns, dtype.itemsize)
        layout = all_consecutive[:3], tiles.columns, tiles.columns_first
        key = operators.SumKey(gate, dtype, aligned, aligned, *layout)
        return operators._specialize_sum_columns(key)
    if case.op == "soi_backward_bias":
        tiles = column_sum_tiles(rows, columns, dtype.itemsize)
        layout = all_consecutive[:2], tiles.columns, tiles.columns_first
        return soi_operators._specialize_sum(soi_operators.SumKey(dtype, aligned, *layout, True))
    if case.op == "soi_backward":
        octets = soi_tiles(rows, columns, dtype.itemsize).columns // 8
        return soi_operators._specialize_backward((dtype, aligned, octets))
    if case.op == "soi_forward":
        tiles = soi_tiles(rows, columns, dtype.itemsize)
        layout = aligned, *tiles[:3], OCTETS, False, True, False
        return soi_operators._specialize_forward(
            soi_operators.ForwardKey(gate, dtype, case.biased, *layout)
        )
    tiles = map_tiles(rows, columns, dtype.itemsize, case.inputs)
    layout = aligned, aligned and is_matrix
    if case.op == "glu_backward":
        return glu_operators._specialize_backward(
            glu_operators.BackwardKey(gate, dtype, *layout, all_consecutive, *tiles[:3])
        )
    given = (True, case.inputs > 2, case.inputs > 1, True, case.biased)
    key = operators.MapKey(
        ORDERS[case.op], gate, dtype, given, *layout, all_consecutive[:4], *tiles[:3]
    )
    return operators._specialize_map(key)


def specializations(architecture: str) -> dict[str, launch.Specialization]:
    """By the names that a test reports; for AMD's GPUs, some of them."""
    cases = [case for case in CASES if case.backend == "triton"]
    if not is_nvidia(architecture):
        cases = [case for case in cases if case.dtype in ("float32", "bfloat16")]
    kernels = {case.name: specialize(case) for case in cases}
    for dtype in {case.dtype: None for case in cases}:
        add = operators._specialize_add_partial_sums(getattr(torch, dtype))
        kernels[f"add_partial_sums {dtype}"] = add
    # What checks must find wrong.
    unaligned = Case("gate_forward", "normal", "float64", False, "triton")
    return {**kernels, f"unaligned {unaligned.name}": specialize(unaligned, aligned=False)}


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
        "pair_sums": sum(sass.pair_sums(asm["ptx"]).values()),
    }


def main(architecture: str) -> None:
    kernels = specializations(architecture)
    with ProcessPoolExecutor(min(4, os.cpu_count())) as pool:
        compiled = pool.map(partial(compile_for, architecture), kernels.values())
    json.dump(dict(zip(kernels, compiled, strict=True)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
