"""What the prediction of a launch is made of, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from machine_code.cases import Case
from machine_code.launches import GAP, SMALL_KERNEL, Launch, resident_blocks, throughput
from machine_code.machines import MACHINES
from machine_code.sass import Kernel, decode
from machine_code.vector_kernels import VectorKernel

H200 = MACHINES["H200"]
FORWARD = Case("gate_forward", "normal", "bfloat16", False, "cuda")
SUMS = Case("gate_backward_bias", "normal", "bfloat16", True, "cuda")
SOI = Case("soi_forward", "normal", "bfloat16", False, "cuda")
LATENCY = 690 / 1700  # us


def launch(case: Case, mib: int = 256, registers: int = 64, **changed: object) -> Launch:
    """Of a kernel that asks for next to nothing of a processor."""
    x = {"vectors": 4, "loads_in_flight": 4, "waits": [0], "slots": 1.0, "instructions": {}}
    kernel = SimpleNamespace(case=case, kernel=Kernel("", [], registers, 0), **(x | changed))
    return Launch(H200, kernel, mib)


def test_customers_of_a_network() -> None:
    """One waits for nobody; many keep the slowest queue busy; n of k equal queues have
    n / (n + k - 1) of its rate."""
    assert throughput(1, 3, [1, 2]) == pytest.approx(1 / 6)
    assert throughput(1000, 3, [1, 2]) == pytest.approx(1 / 2, rel=1e-3)
    assert throughput(5, 0, [2, 2, 2]) == pytest.approx(5 / 7 / 2)


def test_blocks_on_a_processor() -> None:
    registers = [16, 32, 40, 64, 65, 80, 81, 128, 129]
    kernels = [Kernel("sum_columns<>", [], n, 0) for n in registers]
    assert list(map(resident_blocks, kernels)) == [8, 8, 6, 4, 3, 3, 2, 2, 1]
    small = [Kernel("map_rows<>", [], n, 0) for n in registers]  # 4 warps in place of 8
    assert list(map(resident_blocks, small)) == [16, 16, 12, 8, 7, 6, 5, 4, 3]


def test_waves() -> None:
    """64 MiB of 4096 columns in bfloat16: 64 blocks of 128 rows, times 16 of 256 columns."""
    assert launch(SUMS, 64, 128, vectors=4).waves == pytest.approx(64 * 16 / (2 * 132))
    assert launch(SUMS, 256, 128, vectors=4).waves == pytest.approx(128 * 16 / (2 * 132))
    # A block is 8 warps with 4 rows of 256.
    assert launch(FORWARD, 64).waves == pytest.approx(2**25 / (8 * 4 * 256) / (4 * 132))


def test_loads_in_flight() -> None:
    assert launch(FORWARD).kilobytes_in_flight == 4 * 8 * 4 * 512 / 1024
    assert launch(FORWARD, registers=128).kilobytes_in_flight == 32


def test_a_kernel_that_keeps_the_memory_busy_is_a_copy() -> None:
    assert 99 < launch(FORWARD).percent <= 100


def test_the_latency_binds() -> None:
    """One row for each of 8 warps: 4 KiB, and as many written, for each latency and passage."""
    found = launch(FORWARD, registers=255, vectors=1)
    passage = 2 * 512 / (4.3e6 / 132)  # us of a row, from and to memory
    assert found.rate(1, 132) < 132 * 8 * 256 / (LATENCY + passage)
    assert found.rate(1, 132) == pytest.approx(132 * 8 * 256 / (LATENCY + passage), rel=0.15)
    assert found.percent < 60


def test_a_second_wait_is_a_second_latency_less_what_lies_between() -> None:
    once, twice, later, hidden = (
        launch(FORWARD, registers=255, vectors=1, waits=waits).rate(1, 132)
        for waits in ([0], [0, 0], [0, 345], [0, 690])
    )
    assert twice < later < hidden == once
    assert once / twice == pytest.approx(2, rel=0.15)


def test_rows_that_are_loaded_ahead() -> None:
    """Each is a customer: the warp computes while the others are under way."""
    behind, ahead = (launch(SUMS, registers=128, slots=32.0, waits=w) for w in ([0], []))
    assert behind.percent + 1 < ahead.percent < 100


def test_the_last_wave() -> None:
    """Three blocks of 132 x 4 places leave the rest idle, and one wave takes as long as any."""
    whole, more = (launch(FORWARD, 1, slots=30.0) for _ in range(2))
    per_wave = 8 * 4 * 256 * 2 * 132 * 4 / 2**20  # MiB
    whole, more = replace(whole, mib=per_wave), replace(more, mib=per_wave * (1 + 3 / 528))
    assert more.waves == pytest.approx(1 + 3 / 528, abs=1e-3)
    assert more.microseconds > whole.microseconds + LATENCY
    last = 3 * (4 * 8 * 256) / more.rate(1, 3)  # each has a processor of its own
    assert more.microseconds - whole.microseconds == pytest.approx(last, rel=1e-2)


def test_kernels_beside() -> None:
    """A dependent kernel has no gap before it. An A100 has none, nor is Triton's SOI map one."""
    assert launch(FORWARD).beside == 0
    assert launch(SUMS).beside == pytest.approx(3 * LATENCY)
    assert launch(SOI).beside == pytest.approx(SMALL_KERNEL)
    for case in (SUMS, SOI):
        on_a100 = replace(launch(case), machine=MACHINES["A100"])
        assert on_a100.beside == pytest.approx(GAP + SMALL_KERNEL)
    in_triton = launch(SUMS._replace(backend="triton")), launch(SOI._replace(backend="triton"))
    assert [x.beside for x in in_triton] == pytest.approx([3 * LATENCY, GAP + SMALL_KERNEL])
    assert in_triton[1].microseconds - launch(SOI).microseconds == pytest.approx(GAP)


def assembled(*lines: str) -> VectorKernel:
    code = [decode(*line.split(), "") for line in lines]
    return VectorKernel(FORWARD, Kernel("", [*code, decode("EXIT", "", "")], 32, 0))


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
