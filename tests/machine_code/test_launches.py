"""What the prediction of a launch is made of, by hand."""

from dataclasses import replace

import pytest

from machine_code.cases import Case
from machine_code.launches import COPY_START, FITTED, Launch
from machine_code.machines import MACHINES
from machine_code.sass import Kernel, decode
from machine_code.vector_kernels import VectorKernel
from machine_code.work import Work, work_of

H200 = MACHINES["H200"]
FORWARD = Case("gate_forward", "normal", "bfloat16", False, "cuda")
BACKWARD = FORWARD._replace(op="gate_backward")
SUMS = Case("gate_backward_bias", "normal", "bfloat16", True, "cuda")
CDF_SUMS = SUMS._replace(op="cdf_gate_backward")
WEIGHT_SUMS = SUMS._replace(op="glu_backward_weight")
SOI = Case("soi_forward", "normal", "bfloat16", False, "cuda")
MASKED = Case("soi_backward", "", "bfloat16", False, "cuda")

# 48 warps with 4 vectors of 8 elements; no instruction.
WORK = Work(40, 4, 32, 0, 0, 0, 0, {})
WAIT = FITTED.latencies * 690


def launch(case: Case = FORWARD, mib: float = 256, **changed: object) -> Launch:
    return Launch(H200, case, WORK._replace(**changed), mib)


def test_warps_on_a_processor() -> None:
    registers = [16, 32, 40, 64, 65, 80, 81, 128, 129]
    works = [WORK._replace(registers=n, block_warps=8) for n in registers]
    assert [x.resident_warps for x in works] == [64, 64, 48, 32, 24, 24, 16, 16, 8]
    small = [x._replace(block_warps=4) for x in works]
    assert [x.resident_warps for x in small] == [64, 64, 48, 32, 28, 24, 20, 16, 12]
    assert small[4].resident_blocks == 7


def test_computing() -> None:
    """A scheduler has 12 of 48 warps and issues an instruction in a cycle; all wait once."""
    assert launch().computing == pytest.approx(WAIT)
    assert launch(slots=100).computing == pytest.approx(12 * 100 + WAIT)
    assert launch(slots=100, registers=64).computing == pytest.approx(8 * 100 + WAIT)
    slow = launch(slots=100, instructions={"IMAD": 50, "FMA": 60})
    assert slow.computing == pytest.approx(12 * (100 + 50 * (FITTED.imad - 1)) + WAIT)
    # Half as many lanes for logic, an eighth for the special functions.
    assert launch(slots=100, instructions={"ALU": 80}).computing == pytest.approx(12 * 160 + WAIT)
    assert launch(slots=100, instructions={"MUFU": 20}).computing == pytest.approx(12 * 160 + WAIT)


def test_copies_ahead() -> None:
    """Only the first of 8 turns waits for its own copies. A turn is no shorter than the wait for
    those that are under way meanwhile."""
    first = launch(SUMS, slots=1000, turns_ahead=1).computing
    assert first == pytest.approx(12 * 1000 + WAIT / 8)
    assert launch(SUMS, slots=1000).computing == pytest.approx(12 * 1000 + WAIT)
    assert launch(SUMS, slots=100, turns_ahead=1).computing == pytest.approx(WAIT)
    assert launch(SUMS, slots=10, turns_ahead=4).computing == pytest.approx(WAIT / 4)


def test_moving() -> None:
    """48 warps of 32 threads with 32 elements, as many bytes read as written; a processor moves
    4280 / 1.98 / 132 bytes in a cycle."""
    in_a_cycle = 4280 / 1.98 / 132
    assert launch().moving == pytest.approx(48 * 32 * 32 * 4 / in_a_cycle)
    two_read = 48 * 32 * 32 * (4 * (2 - FITTED.written) + 2 * FITTED.written)
    assert launch(BACKWARD).moving == pytest.approx(two_read / in_a_cycle)
    # The mask is read: for each element 1/8 byte, and a warp has 4 accesses.
    masked = 32 * 32 * (4 + (2 - FITTED.written) / 8) + 4 * FITTED.mask_access
    assert launch(MASKED, mask_accesses=4).moving == pytest.approx(48 * masked / in_a_cycle)


def test_the_longer_time_binds() -> None:
    """Where both are the same, they take longer; the more so, the fewer blocks there are."""
    moving = launch().moving
    slots = (moving - WAIT) / 12
    assert launch(slots=slots / 4).turn == pytest.approx(moving, rel=1e-3)
    assert launch(slots=10 * slots).turn == pytest.approx(120 * slots + WAIT, rel=1e-3)
    for block_warps, blocks in ((4, 12), (8, 6), (16, 3)):
        exponent = FITTED.exponent + FITTED.exponent_of_block * blocks
        found = launch(slots=slots, block_warps=block_warps).turn
        assert found == pytest.approx(2 ** (1 / exponent) * moving, rel=1e-3)


def test_time() -> None:
    """In a turn the chip has 132 x 48 x 32 x 32 elements. A kernel that only moves is a copy, but
    for its start."""
    found = launch()
    turns = 2**27 / (132 * 48 * 32 * 32)
    assert found.microseconds == pytest.approx(FITTED.start + turns * found.turn / 1980)
    copy = 2**29 / 4.28e6
    percent = 100 * (copy + COPY_START) / (copy + FITTED.start)
    assert found.percent == pytest.approx(percent, rel=1e-3)
    assert launch(mib=64).percent == pytest.approx(
        100 * (copy / 4 + COPY_START) / (copy / 4 + FITTED.start), rel=1e-3
    )


def test_turns_of_column_sums() -> None:
    """64 MiB of 4096 columns in bfloat16 are 8192 rows, in blocks of 128; from 16384 on, of 256. A
    warp of 8 has every eighth of them, 4 in a turn. What is outside of the loop is issued once."""
    assert [launch(SUMS, mib).turns for mib in (16, 64, 128, 256)] == [1, 4, 8, 8]
    cycles = launch(SUMS, 64, slots=100, around=80).computing
    assert cycles == pytest.approx(12 * (100 + 80 / 4) + WAIT)


def test_turns_of_a_row() -> None:
    """4096 columns, of which a warp has 32 x 16 in a turn."""
    assert launch(WEIGHT_SUMS, elements=16).turns == 8
    assert launch(FORWARD, around=0).turns == 1


def test_other_kernels_of_a_call() -> None:
    """From compute capability 9.0 on they start early; each other small kernel takes its time."""
    second, seed, small = FITTED.second_stage, FITTED.seed, FITTED.small
    expected = {
        FORWARD: 0,
        SUMS: second,
        CDF_SUMS: second + small,
        WEIGHT_SUMS: 0,
        SOI: seed,
        SOI._replace(backend="triton"): seed + small,
    }
    for case, time in expected.items():
        assert replace(launch(case), draws_seed=True).beside == pytest.approx(time), case
    assert launch(SOI).beside == 0
    assert replace(launch(), small_kernels=2).beside == pytest.approx(2 * small)
    a100 = MACHINES["A100"]
    on_a100 = [replace(launch(x), machine=a100, draws_seed=True).beside for x in (SUMS, SOI)]
    assert on_a100 == pytest.approx([second + small, seed + small])


def test_the_last_block_adds_partial_sums() -> None:
    """64 MiB are 64 blocks of rows, of which it reads 256 columns of 4 bytes: 64 kB at 64 bytes in
    a cycle. More than 128 blocks are added by another kernel."""
    expected = (3 * 690 + 64 * 256 * 4 / 64) / 1980
    assert launch(SUMS, 64, adds_partials=1).beside == pytest.approx(expected)
    assert launch(CDF_SUMS, 64, adds_partials=1).beside == pytest.approx(expected + 1024 / 1980)
    assert launch(SUMS, 256, adds_partials=1).beside == pytest.approx(expected + 1024 / 1980)
    assert launch(SUMS, 1024, adds_partials=1).beside == FITTED.second_stage


def assembled(*lines: str) -> VectorKernel:
    code = [decode(*line.split(" "), "") for line in lines]
    return VectorKernel(FORWARD, Kernel("", [*code, decode("EXIT", "", "")], 32, 0, 128))


def test_waits() -> None:
    """A wait for two loads at once, then a wait with one instruction since its load."""
    x = assembled(
        "LDG.E.128 R4,desc[UR4][R2.64]",
        "LDG.E.128 R8,desc[UR4][R2.64]",
        "FADD R4,R4,R8",
        "LDG.E.128 R12,desc[UR4][R2.64]",
        "FADD R5,R5,R9",
        "FADD R12,R12,R12",
        "STG.E.128 desc[UR4][R2.64],R12",
    )
    assert x.waits == [1, 2]


def test_work() -> None:
    """A vector of 8 elements and a byte of a mask; packed float16 takes the FMA's lanes for two
    cycles."""
    x = assembled(
        "LDG.E.128 R4,desc[UR4][R2.64]",
        "IMAD.WIDE R2,R2,R3,R2",
        "HFMA2 R4,R4,R4,R4",
        "LOP3.LUT R4,R4,R5,RZ",
        "STG.E.U8 desc[UR4][R2.64],R4",
        "STG.E.128 desc[UR4][R2.64],R4",
    )
    pipes = {"IMAD": 1, "FMA": 3, "ALU": 1}
    assert work_of(x, "sm_90") == Work(32, 4, 8, 7, 0, 1, 0, pipes)


def test_turns_ahead() -> None:
    """Two rows in a turn, each copied as a group. Before a row is used, all groups but the newest
    have arrived."""

    def found(newest: int) -> int:
        row = [f"DEPBAR.LE SB0,{newest:#x}", "LDS.128 R4,[R2]"]
        copy = ["LDGSTS.E.BYPASS.128 [R2],desc[UR4][R2.64]", "LDGDEPBAR "]
        x = assembled(*2 * [*row, *copy, "STG.E.128 desc[UR4][R2.64],R4"])
        assert (x.loads, x.stores, x.waits) == (2, 2, [])
        return work_of(x, "sm_90").turns_ahead

    assert [found(newest) for newest in (0, 1, 2, 3)] == [0, 1, 1, 2]
