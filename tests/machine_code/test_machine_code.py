"""What compilers make of the CUDA and the Triton kernels, read in their machine code: no GPU is
needed.

The vector path of a kernel is what a thread executes where all operands are rows of vectors.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import machine_code
from bench import roofline
from machine_code import budgets, cuda_code
from machine_code.cases import (
    ARCHITECTURES,
    BACKENDS,
    CASES,
    GATES,
    PREDICTED,
    VECTOR_BYTES,
    Case,
)
from machine_code.data_flow import branches_on_loads
from machine_code.machines import MACHINES
from machine_code.sass import Kernel, decode
from machine_code.vector_kernels import VectorKernel, busiest
from machine_code.work import Work, turns_ahead, work_of
from tests.machine_code.families import FAMILIES, beyond, reached

FAULTS = Path(machine_code.__file__).parent / "faults.cu"
UNALIGNED = "unaligned gate_forward normal float64"  # made by compile_triton

LEAST_THREADS = 512  # two blocks, the fewest that tuning.h asks for
H100 = MACHINES["H100"]
# Its bandwidth times a latency of 0.7 us, over its processors: see tuning.h.
H100_BYTES_IN_FLIGHT = H100.copied * 1e12 * 0.7e-6 / H100.processors

# For a bfloat16; its random bits take 4.
MOST_SOI_SLOTS = {"cuda": 23, "triton": 24}

SPILLED = [
    ("cdf_gate_backward cauchy float32 located", 16),  # for sm_100
    ("soi_cdf_forward laplace bfloat16 located", 8),
    ("map_rows<GluBackward<Cauchy, fp16>, fp16, 0, 1>", 8),
    ("map_rows<GluBackward<Cauchy, fp16>, fp16, 0, 2>", 8),
    ("map_rows<Forward<Laplace, fp64>, fp64, 0, 4>", 8),
    ("map_rows<CdfForward<Cauchy, bf16>, bf16, 2, 8>", 8),
    ("map_rows<CdfForward<Cauchy, fp16>, fp16, 2, 8>", 8),
    ("quantize_tiles<AddBias<Backward<Cauchy, bf16> >, bf16, 1, 2>", 120),  # for sm_90
    # For sm_80 and sm_100: a block of 1,024 threads has 64 registers for each.
    ("quantize_rows<AddBias<Backward<Cauchy, bf16> >, bf16, 1>", 64),
    ("quantize_rows<AddBias<Backward<Cauchy, bf16> >, bf16, 1>", 16),
    ("quantize_rows<AddBias<Backward<Normal, bf16> >, bf16, 1>", 8),
    ("quantize_rows<AddBias<Backward<Logistic, fp32> >, fp32, 1>", 8),
    ("quantize_rows<AddBias<Backward<Logistic1702, bf16> >, bf16, 1>", 8),
    ("quantize_rows<AddBias<Backward<Logistic1702, fp32> >, fp32, 1>", 8),
]

# CUDA's tiles that are quantised stay in registers, all but some words that are read once.
TILE_STACK = 40

# How the names of kernels begin that have registers for three blocks of 4 warps alone. They are
# enough: a thread loads 128 to 256 bytes first. sm_80 lacks instructions for FP8.
FEW_THREADS = {"sm_80": "quantize_tiles<", "sm_100": "soi_cdf_forward cauchy float16"}
THREE_BLOCKS = 384

# Between the lanes of a warp. Where ptxas for sm_80 does not see that all lanes come at once, it
# writes an exchange twice: in place, which they take if they do, and as a call.
EXCHANGE = re.compile(r"__cuda_(sm70_)?(shfl|vote|redux)sync_")

DOUBLE = re.compile(r"D(ADD|FMA|MNMX|MUL|SETP?)\b|MUFU\.\w+64H|.*\bF64\b")


def skip_without(missing: list[str]) -> None:
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


class Code(NamedTuple):
    backend: str
    architecture: str
    gate: str | None = None  # None: every gate


# The disassembler takes half a minute for all gates of CUDA, and Triton a minute to compile all its
# kernels to machine code.
ONE_GATE = pytest.param(Code("cuda", "sm_90", "normal"), id="cuda-sm_90-normal")


def every_gate(*architectures: str) -> list:
    codes = (Code(*names) for names in product(BACKENDS, architectures))
    return [pytest.param(x, id="-".join(x[:2]), marks=pytest.mark.slow) for x in codes]


@pytest.fixture(scope="session", params=[ONE_GATE, *every_gate(*ARCHITECTURES)])
def code(request: pytest.FixtureRequest) -> Code:
    skip_without(BACKENDS[request.param.backend].missing_tools())
    return request.param


@pytest.fixture(scope="session")
def backend(code: Code) -> str:
    return code.backend


@pytest.fixture(scope="session")
def architecture(code: Code) -> str:
    return code.architecture


@pytest.fixture(scope="session")
def gates(code: Code) -> list[str]:
    return GATES if code.gate is None else [code.gate]


@pytest.fixture(scope="session")
def kernels(code: Code) -> list[Kernel]:
    if code.gate is None:
        return BACKENDS[code.backend].kernels(code.architecture)
    return [x for gate in (code.gate, "") for x in cuda_code.kernels(code.architecture, gate)]


@pytest.fixture(scope="session")
def vector_kernels(kernels: list[Kernel]) -> list[VectorKernel]:
    return machine_code.vector_kernels.vector_kernels(kernels)


@pytest.fixture(scope="session")
def faults() -> dict[str, Kernel]:
    skip_without(cuda_code.missing_tools() + cuda_code.missing_programs("nvcc"))
    return {kernel.name: kernel for kernel in cuda_code.compile_kernels(FAULTS, "sm_90")}


def opcodes(kernel: Kernel) -> Iterable[str]:
    return (instruction.opcode for instruction in kernel.instructions)


def has_local_memory(kernel: Kernel) -> bool:
    accesses = any(opcode.startswith(("LDL", "STL")) for opcode in opcodes(kernel))
    return accesses or kernel.stack > 0


def has_doubles(kernel: Kernel) -> bool:
    return any(map(DOUBLE.match, opcodes(kernel)))


def has_calls(kernel: Kernel) -> bool:
    return any(x.is_call and not EXCHANGE.search(x.operands) for x in kernel.instructions)


def flushes_subnormals(kernel: Kernel) -> bool:
    return any(".FTZ" in x and not x.startswith("MUFU") for x in opcodes(kernel))


def has_fused_pairs(kernel: Kernel, asked: int) -> bool:
    return sum(instruction.name == "FADD2" for instruction in kernel.instructions) < asked


def resident_threads(kernel: Kernel) -> int:
    return Work(kernel.registers, kernel.threads // 32, 0, 0, 0, 0, 0, {}).resident_warps * 32


def is_short(kernel: Kernel) -> bool:
    return not re.search("fp64|float64", kernel.name)


def estimates(case: Case) -> bool:
    """Whether an SOI map decides by an estimate of F where it can: Triton's does in 16 bits."""
    draws = case.op in ("soi_forward", "soi_cdf_forward")
    return draws and (case.backend == "cuda" or case.itemsize == 2)


def test_every_case_is_found(
    vector_kernels: list[VectorKernel], backend: str, gates: list[str]
) -> None:
    cases = {case for case in CASES if case.backend == backend and case.gate in ("", *gates)}
    assert set(busiest(vector_kernels)) == cases


def test_vector_path(vector_kernels: list[VectorKernel]) -> None:
    """A load for each vector of an input, a store for each of an output, and no access of less
    than 16 bytes, but for a mask. CUDA's kernels give a thread rows of the same columns, so that it
    loads one vector of a bias; Triton's may give it others in the same row, and do so in the SOI
    map."""
    wrong = []
    for x in vector_kernels:
        loads_along = x.loads - x.vectors * x.case.inputs
        expected = [0]
        if x.case.vectors and not x.case.has_sums:
            once = x.case.backend == "cuda" and x.case.operator.family != "soi"
            expected = x.case.vectors * np.arange(1, 2 if once else x.vectors + 1)
        if x.vectors == 0 or loads_along not in expected or x.narrow_accesses > 0:
            wrong.append((x.kernel.name, x.loads, x.stores, x.narrow_accesses))
    assert not wrong


def test_no_branch_on_data(vector_kernels: list[VectorKernel]) -> None:
    """But for an SOI map that estimates F: one vector of a warp in 60 takes it."""
    short = [x for x in vector_kernels if is_short(x.kernel)]
    allowed = [x.vectors if estimates(x.case) else 0 for x in short]
    found = [(x.kernel.name, branches_on_loads(x.path)) for x in short]
    assert not [x for x, most in zip(found, allowed, strict=True) if x[1] > most]


FAULTS_OF_KERNELS: dict[str, Callable[[Kernel], bool]] = {
    "local memory": has_local_memory,
    "doubles": has_doubles,
    # A division by the compiler calls a function for operands that are subnormal or huge.
    "calls": has_calls,
    "flushed subnormals": flushes_subnormals,
    "few threads": lambda kernel: resident_threads(kernel) < LEAST_THREADS,
}


def is_allowed(fault: str, x: Kernel, backend: str, architecture: str) -> bool:
    """Doubles in float64's kernels, and what Triton's keep while the function that divides is
    called; and a few kernels lack registers."""
    is_tile = x.name.startswith("quantize_tiles<")
    if fault == "local memory":
        divides = backend == "triton" and not is_short(x) and has_calls(x)
        return divides or is_tile and x.stack <= TILE_STACK or (x.name, x.stack) in SPILLED
    if fault == "few threads" and architecture in FEW_THREADS:
        return x.name.startswith(FEW_THREADS[architecture]) and resident_threads(x) >= THREE_BLOCKS
    return fault in ("doubles", "calls") and not is_short(x)


def test_no_kernel_has_a_fault(kernels: list[Kernel], backend: str, architecture: str) -> None:
    assert not [
        (fault, x.name, x.stack, x.registers)
        for (fault, is_found), x in product(FAULTS_OF_KERNELS.items(), kernels)
        if is_found(x) and not is_allowed(fault, x, backend, architecture)
    ]


@pytest.mark.parametrize("code", every_gate("sm_100"), indirect=True)
def test_pairs_are_not_fused(kernels: list[Kernel], backend: str, architecture: str) -> None:
    """ptxas makes one operation of a product of pairs of floats and a sum, whatever it is told.
    The operations are asked for in PTX, of the architecture that has them."""
    skip_without(cuda_code.missing_programs("nvcc") if backend == "cuda" else [])
    asked = BACKENDS[backend].all_pair_sums(architecture)
    assert backend == "triton" or any(asked.values())
    assert not [(x.name, asked[x.name]) for x in kernels if has_fused_pairs(x, asked[x.name])]


def test_bytes_in_flight(vector_kernels: list[VectorKernel]) -> None:
    """The threads for which there are registers load enough at a time to hide the latency."""
    short = []
    for x in busiest(vector_kernels).values():
        loads = min(x.loads_in_flight, x.vectors * x.case.inputs)
        enough = resident_threads(x.kernel) * loads * VECTOR_BYTES >= H100_BYTES_IN_FLIGHT
        if not enough:
            short.append((x.kernel.name, x.kernel.registers, x.loads_in_flight))
    assert not short


def test_rows_ahead(vector_kernels: list[VectorKernel], backend: str, architecture: str) -> None:
    """Sums load the next rows before they compute, and three inputs are loaded at once: so much
    that a B200's memory is full, or an H200's where a weighted gated linear unit sums."""
    if backend == "triton":
        pytest.skip("leaves the order to ptxas")
    wrong = []
    for case, x in busiest(filter(lambda x: is_short(x.kernel), vector_kernels)).items():
        if case.op in ("gate_backward_bias", "soi_backward_bias"):
            is_ahead = x.loads == 8 and turns_ahead(x.path) == 1
        elif case.op == "glu_backward_weight":
            is_ahead = len(x.waits) == 1 and x.loads_in_flight == x.loads == 6
        elif case.inputs == 3:
            is_ahead = x.loads_in_flight >= 6 and len(x.waits) <= 1 + case.biased
        else:
            continue
        filled = MACHINES["H200" if case.has_weights else "B200"]
        in_flight = resident_threads(x.kernel) * x.loads_in_flight * VECTOR_BYTES / 1024
        if not is_ahead or in_flight < filled.in_flight:
            wrong.append((x.kernel.name, x.waits, x.loads_in_flight, x.kernel.registers))
    assert not wrong


def test_vectors_of_soi_map_are_ahead(
    vector_kernels: list[VectorKernel], backend: str, architecture: str
) -> None:
    """A thread loads all of its vectors of x, and the bias once, before it waits for one."""
    if backend == "triton":
        pytest.skip("leaves the order to ptxas")
    short = filter(lambda x: is_short(x.kernel), vector_kernels)
    found = [x for case, x in busiest(short).items() if case.op == "soi_forward"]
    # Two of its six vectors follow, as ptxas orders them there.
    slow = {"sm_80": ("cauchy", 2, True), "sm_100": ("cauchy", 2, False)}.get(architecture)
    late = [
        (x.kernel.name, x.loads_in_flight, x.waits)
        for x in found
        if (x.case.gate, x.case.itemsize, x.case.biased) != slow
        if len(x.waits) != 1
        or x.vectors != (6 if x.case.itemsize == 2 else 4)
        or x.loads_in_flight != x.vectors + x.case.biased
    ]
    assert found and not late


def test_families(
    kernels: list[Kernel], vector_kernels: list[VectorKernel], backend: str, architecture: str
) -> None:
    """By family: the warps that a processor has room for, and the predicted speed."""
    if architecture != "sm_90":
        pytest.skip("the limits are of kernels for sm_90")
    limits_of = FAMILIES[backend]
    others = [case for case in PREDICTED if case not in CASES]
    every = vector_kernels + machine_code.vector_kernels.vector_kernels(kernels, others)
    found = defaultdict(list)
    for case, x in busiest(filter(lambda x: is_short(x.kernel), every)).items():
        family = case.op, case.biased, 8 * case.itemsize
        found[family].append(reached(case, work_of(x, architecture)))
    assert found.keys() == limits_of.keys()
    assert not beyond(found, limits_of)


def test_slots_are_within_the_budget(vector_kernels: list[VectorKernel], architecture: str) -> None:
    allowed = budgets.read()
    assert not [
        (*case, x.slots, allowed[case][architecture])
        for case, x in busiest(vector_kernels).items()
        if x.slots > allowed[case][architecture]
    ]


@pytest.mark.parametrize("code", [ONE_GATE, *every_gate("sm_90")], indirect=True)
def test_memory_bound_on_h100(vector_kernels: list[VectorKernel]) -> None:
    """Predicted, from the slots and the pipes that they go to. But for float64: an H100 has half as
    many units for it, other GPUs almost none. And but for a location and a scale, which are worked
    out in float32 for any dtype, where 60 % is enough."""
    predicted = [
        (*case, H100.predict(case.moved, x.slots, x.instructions))
        for case, x in busiest(vector_kernels).items()
        if case.dtype != "float64"
    ]
    bound = [x for x in predicted if x[-1].bound != "memory"]
    assert not [x for x in bound if "cdf" not in x[0] or x[-1].percent < 60]


def test_soi_forward(
    vector_kernels: list[VectorKernel], architecture: str, backend: str, gates: list[str]
) -> None:
    """An estimate of F is a power and a reciprocal; else nothing is approximated. The slots of a
    bfloat16 are bounded as such, for the architecture that they were counted for."""
    found = {case: x for case, x in busiest(vector_kernels).items() if case.op == "soi_forward"}
    assert not [case for case, x in found.items() if x.mufu > 2 * estimates(case)]
    if architecture == "sm_90":
        slots = [found[Case("soi_forward", g, "bfloat16", False, backend)].slots for g in gates]
        assert max(slots) <= MOST_SOI_SLOTS[backend], slots


@pytest.mark.slow
def test_launch_of_a_size() -> None:
    """The prediction of a plain kernel at the roof stays what it is."""
    skip_without(cuda_code.missing_tools())
    case, h200 = Case("gate_backward", "normal", "bfloat16", False, "cuda"), MACHINES["H200"]
    needs = roofline.compiled("sm_90", [case])
    (row,) = roofline.rows_of(h200, [case], needs, Path(), [64, 256])
    assert row.predicted.percent == 100
    for mib, found in zip((64, 256), row.as_json()["predicted of launches"], strict=True):
        assert (found["MiB"], found["warps"]) == (mib, 48)
        assert 100 < found["% of roof"] < 104  # reads cost less than writes
        assert found["microseconds"] > 3 * mib * 2**20 / 4.8e6


@pytest.mark.slow
def test_the_roofline_has_every_instruction() -> None:
    """Each counts once, and the budget exceeds their sum by at most one slot."""
    skip_without(cuda_code.missing_tools())
    case = Case("soi_backward", "", "float32", False, "cuda")
    slots, instructions, _ = roofline.compiled("sm_90", [case])[case]
    assert sum(instructions.values()) == pytest.approx(slots)
    assert slots <= roofline.allowed("sm_90")[case].slots <= slots + 1


def test_checks_find_faults(faults: dict[str, Kernel]) -> None:
    faulty = {
        fault: {name for name, kernel in faults.items() if is_found(kernel)}
        for fault, is_found in FAULTS_OF_KERNELS.items()
    }
    # nvdisasm 13.5 lists the function that is called, which flushes too, with the kernel.
    faulty["flushed subnormals"] -= faulty["calls"]
    assert faulty == {
        "local memory": {"local_memory"},
        "doubles": {"double_arithmetic"},
        "calls": {"call"},
        "flushed subnormals": {"flushed_subnormals"},
        "few threads": {"many_registers"},
    }


def test_check_finds_fused_pairs() -> None:
    product, total, fused = (decode(name, "", "") for name in ("FMUL2", "FADD2", "FFMA2"))
    kernels = [Kernel("sound", [product, total], 8, 0), Kernel("fused", [fused], 8, 0)]
    assert [has_fused_pairs(kernel, asked=1) for kernel in kernels] == [False, True]


def test_vector_path_finds_faults(faults: dict[str, Kernel]) -> None:
    case = Case("gate_forward", "normal", "float32", False, "cuda")

    def vectors(name: str) -> tuple[int, int, int, int]:
        x = VectorKernel(case, faults[name])
        return x.loads, x.stores, x.narrow_accesses, x.loads_in_flight

    assert vectors("sound") == (2, 1, 0, 2)
    assert vectors("one_load_in_flight") == (2, 1, 0, 1)
    assert vectors("narrow_access") == (1, 1, 1, 1)
    assert branches_on_loads(VectorKernel(case, faults["sound"]).path) == 0
    assert branches_on_loads(VectorKernel(case, faults["call"]).path) > 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [Code("triton", "sm_90")], indirect=True)
def test_checks_find_faults_in_triton(kernels: list[Kernel]) -> None:
    """Kernels that are disassembled together keep their calls and their paths apart."""
    named = {kernel.name: kernel for kernel in kernels}
    unaligned, sound = named[UNALIGNED], named["gate_forward normal bfloat16"]
    assert has_doubles(unaligned) and not has_doubles(sound)
    assert has_calls(unaligned) and not has_calls(sound)
    assert VectorKernel(CASES[0], unaligned).narrow_accesses > 0
    assert VectorKernel(CASES[0], sound).narrow_accesses == 0
