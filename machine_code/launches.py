"""Predicts the time of a launch, with what machines.py leaves out.

Resident warps wait for memory, then compete for the schedulers and for the memory. Mean value
analysis (Reiser and Lavenberg, JACM 27, 1980) gives the throughput of this closed network: loads
that are waited for together are a customer, the memory and the schedulers are its queues, and the
latency is a delay.
"""

import math
from dataclasses import dataclass

from machine_code.machines import Machine
from machine_code.sass import Kernel
from machine_code.vector_kernels import VectorKernel

REGISTERS, WARPS, SCHEDULERS = 65536, 64, 4  # of a processor

# Microseconds between kernels of a stream: 3.8 for each of many that take 2.9 (NVIDIA's blog,
# "Getting Started with CUDA Graphs"). So a kernel that does next to nothing takes 3.8; of a
# dependent one, which has started before, three latencies are left: it reads, adds and writes.
GAP, SMALL_KERNEL = 0.9, 2.9

COLUMNS = 4096  # of the tensors; csrc/gates/column_sums.h defines the blocks of column sums


def block_warps(kernel: Kernel) -> int:
    """As csrc/cuda/tuning.h has them."""
    return 4 if kernel.name.startswith(("map_rows<", "draw_rows<")) else 8


def resident_blocks(kernel: Kernel) -> int:
    """On a processor. Registers are allocated by eights for a thread."""
    warps = block_warps(kernel)
    return min(WARPS // warps, REGISTERS // (-(-kernel.registers // 8) * 8 * 32 * warps))


def throughput(customers: int, delay: float, demands: list[float]) -> float:
    """Customers in a unit of time, by mean value analysis."""
    queues, rate = [0.0] * len(demands), 0.0
    for n in range(1, customers + 1):
        times = [d * (1 + q) for d, q in zip(demands, queues, strict=True)]
        rate = n / (delay + sum(times))
        queues = [rate * time for time in times]
    return rate


@dataclass(frozen=True)
class Launch:
    """The launch of a kernel for matrices of `mib` MiB each."""

    machine: Machine
    x: VectorKernel
    mib: int

    @property
    def elements(self) -> int:
        return self.mib * 2**20 // self.x.case.itemsize

    @property
    def of_warp(self) -> float:
        """Elements that a warp has registers for."""
        return 32 * self.x.vectors * 16 / self.x.case.itemsize

    @property
    def sums_columns(self) -> bool:
        return self.x.case.has_sums and not self.x.case.has_weights

    @property
    def blocks(self) -> int:
        if not self.sums_columns:
            return math.ceil(self.elements / self.of_warp / block_warps(self.x.kernel))
        rows = self.elements // COLUMNS
        block_rows = min(max(math.ceil(rows / (64 * 32)) * 32, 32), 256)
        return math.ceil(rows / block_rows) * math.ceil(COLUMNS * self.x.case.itemsize / 512)

    @property
    def latency(self) -> float:
        """Microseconds."""
        return self.machine.latency / (self.machine.clock * 1000)

    @property
    def kilobytes_in_flight(self) -> float:
        blocks = resident_blocks(self.x.kernel)
        return blocks * block_warps(self.x.kernel) * self.x.loads_in_flight * 512 / 1024

    def rate(self, blocks: int, processors: int) -> float:
        """Elements in a microsecond, with `blocks` blocks on each of `processors` processors. Where
        a loop loads ahead, each row that is under way is a customer, else each warp."""
        x, machine = self.x, self.machine
        parts = 1 if x.waits else x.vectors
        elements = self.of_warp / parts
        memory = elements * x.case.moved / (machine.copied * 1e6) * processors
        needed = machine.predict(x.case.moved, x.slots, x.instructions).picoseconds
        pipe = elements * max(t for name, t in needed.items() if name != "memory") / 1e6
        pipe *= machine.processors
        delay = pipe * (SCHEDULERS - 1)  # a warp has one of the schedulers
        for distance in x.waits or [0]:
            delay += max(0, self.latency - distance / (machine.clock * 1000))
        customers = blocks * block_warps(x.kernel) * parts
        return processors * elements * throughput(customers, delay, [memory, pipe])

    @property
    def waves(self) -> float:
        return self.blocks / (resident_blocks(self.x.kernel) * self.machine.processors)

    @property
    def microseconds(self) -> float:
        """Full waves, a last partial one, and the other kernels of the call."""
        resident, processors = resident_blocks(self.x.kernel), self.machine.processors
        of_block = self.elements / self.blocks
        last = self.blocks % (resident * processors)
        time = (self.blocks - last) * of_block / self.rate(resident, processors)
        if last:
            each = math.ceil(last / processors)
            time += last * of_block / self.rate(each, min(processors, last))
        return GAP + self.latency + time + self.beside

    @property
    def beside(self) -> float:
        """The second stage of column sums, or the kernel that draws the seed of a mask. The second
        of two kernels is dependent from compute capability 9.0 on, but for Triton's SOI map."""
        can_overlap = int(self.machine.architecture.removeprefix("sm_")) >= 90
        second = 3 * self.latency if can_overlap else GAP + SMALL_KERNEL
        seed = SMALL_KERNEL
        if not can_overlap or self.x.case.backend == "triton":
            seed += GAP
        return second * self.sums_columns + seed * ("seed" in self.x.case.operator.inputs)

    @property
    def percent(self) -> float:
        """Of the speed of a copy of as many bytes."""
        copy = self.elements * self.x.case.moved / (self.machine.copied * 1e6)
        return 100 * (GAP + self.latency + copy) / self.microseconds

    def as_json(self) -> dict[str, float]:
        return {
            "MiB": self.mib,
            "kB in flight": self.kilobytes_in_flight,
            "waves": self.waves,
            "microseconds": self.microseconds,
            "% of roof": self.percent,
        }
