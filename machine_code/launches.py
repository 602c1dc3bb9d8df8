"""Predicts the time of a launch, with what machines.py leaves out.

The warps that fit on a processor begin together: they wait for their loads together, then compute
in turn. So a latency is added to their computing, however many they are; if they copy ahead, of
their first turn alone. Their bytes pass through memory meanwhile; the longer of both binds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from gelu_kernels.triton_kernels.tuning import column_sum_tiles
from machine_code.cases import VECTOR_BYTES, Case
from machine_code.machines import Machine
from machine_code.quantized import Cell
from machine_code.work import Work

COLUMNS = 4096  # of the tensors
# csrc/gates/column_sums.h defines the blocks of column sums; a last block adds so many of them.
ROW_LANES, MOST_PARTIALS = 8, 128


class Fitted(NamedTuple):
    """By least squares to bench/results/nvidia-h200.csv: python -m bench.calibration --fit."""

    latencies: float = 2.13  # that warps wait, in latencies of an idle memory
    imad: float = 1.62  # slots of any IMAD, which has half of the FMA's lanes
    written: float = 1.087  # time of a written byte, in mean bytes of a copy; a read one has less
    mask_access: float = 33.3  # bytes that a warp's access of a mask costs beyond those it moves
    # Of the norm that adds both times, and what each resident block adds to it: as blocks run
    # apart, one computes while another waits.
    exponent: float = 5.91
    exponent_of_block: float = 0.883
    start: float = 4.99  # us of a launch, and to its end
    second_stage: float = 3.46  # us of the sums of partial sums
    seed: float = 1.47  # us of the kernel that draws a seed
    small: float = 2.41  # us of another small kernel


FITTED = Fitted()
COPY_START = 3.35  # us, measured likewise


@dataclass(frozen=True)
class Launch:
    """A kernel for matrices of `mib` MiB each. Other small kernels may belong to the call."""

    machine: Machine
    case: Case | Cell
    work: Work
    mib: float
    small_kernels: int = 0
    draws_seed: bool = False  # of a mask by a kernel, as in the run that was measured
    fitted: Fitted = FITTED

    @property
    def elements(self) -> float:
        return self.mib * 2**20 / self.case.itemsize

    @property
    def block_rows(self) -> int:
        """Of column sums."""
        return column_sum_tiles(
            int(self.elements) // COLUMNS, COLUMNS, self.case.itemsize
        ).block_rows

    @property
    def turns(self) -> float:
        """Of a thread."""
        vectors = self.work.elements * self.case.itemsize / VECTOR_BYTES
        if self.case.column_sums:
            return self.block_rows / ROW_LANES / vectors
        if self.case.has_sums:  # of a row, by a warp
            return COLUMNS / 32 / self.work.elements
        return 1

    @property
    def computing(self) -> float:
        """Cycles of a turn of all warps of a processor."""
        work, machine = self.work, self.machine
        slots = work.slots + (self.fitted.imad - 1) * work.instructions.get("IMAD", 0)
        needed = {"issue": slots + work.around / self.turns, **work.instructions}
        times = machine.predict_pipes(0, needed).picoseconds
        of_warp = max(times.values()) * machine.processors * machine.clock / 1000 * 32
        computing, waiting = of_warp * work.resident_warps, self.fitted.latencies * machine.latency
        if not work.turns_ahead:
            return computing + waiting
        return max(computing + waiting / self.turns, waiting / work.turns_ahead)

    @property
    def moving(self) -> float:
        """Cycles of a turn of all warps of a processor, in memory."""
        case, work, machine, fitted = self.case, self.work, self.machine, self.fitted
        of_element = fitted.written * case.written + (2 - fitted.written) * case.read
        of_warp = 32 * work.elements * of_element + fitted.mask_access * work.mask_accesses
        in_a_cycle = machine.copied * 1000 / machine.clock / machine.processors
        return work.resident_warps * of_warp / in_a_cycle

    @property
    def turn(self) -> float:
        fitted, blocks = self.fitted, self.work.resident_blocks
        exponent = fitted.exponent + fitted.exponent_of_block * blocks
        return (self.computing**exponent + self.moving**exponent) ** (1 / exponent)

    @property
    def microseconds(self) -> float:
        in_a_turn = self.work.resident_warps * 32 * self.work.elements * self.machine.processors
        time = self.elements / in_a_turn * self.turn / (self.machine.clock * 1000)
        return self.fitted.start + time + self.beside

    @property
    def beside(self) -> float:
        """What follows the loops of a call, or goes before: the second stages of column sums, the
        kernel that draws the seed of a mask, and other kernels. From compute capability 9.0 on, but
        for Triton's SOI map, each starts while the one before still runs."""
        fitted, sums = self.fitted, self.case.column_sums
        can_overlap = int(self.machine.architecture.removeprefix("sm_")) >= 90
        has_seed = self.draws_seed and self.case.has_seed
        small, second = self.small_kernels, 0.0
        if self.work.adds_partials and self.partials <= MOST_PARTIALS:
            second = self.last_block
        elif sums:
            small += sums - can_overlap
            second = fitted.second_stage
        if not can_overlap or self.case.backend == "triton":
            small += has_seed
        return second + fitted.seed * has_seed + fitted.small * small

    @property
    def partials(self) -> float:
        """Of a column."""
        return -(-self.elements / COLUMNS // self.block_rows)

    @property
    def last_block(self) -> float:
        """Microseconds. It waits for its writes, for the count and for the first partial sums, and
        reads what an access of a warp has in each block of rows, 64 bytes in a cycle."""
        segment = 32 * VECTOR_BYTES // self.case.itemsize
        bytes_read = self.case.column_sums * self.partials * segment * 4
        return (3 * self.machine.latency + bytes_read / 64) / (self.machine.clock * 1000)

    @property
    def percent(self) -> float:
        """Of the speed of a copy of a tensor as large."""
        copied = self.machine.copied * 1e6  # bytes in a microsecond
        tensor = self.elements * self.case.itemsize
        copy = (COPY_START + 2 * tensor / copied) / (2 * tensor)
        return 100 * copy * self.elements * self.case.moved / self.microseconds

    def as_json(self) -> dict[str, float]:
        return {
            "MiB": self.mib,
            "warps": self.work.resident_warps,
            "computing, cycles": self.computing,
            "moving, cycles": self.moving,
            "microseconds": self.microseconds,
            "% of roof": self.percent,
        }


def percent_of(launches: Sequence[Launch]) -> float:
    """Of the speed of a copy of all that they move, one after the other."""
    times = [launch.microseconds for launch in launches]
    percents = [launch.percent for launch in launches]
    return sum(map(mul, percents, times)) / sum(times)
