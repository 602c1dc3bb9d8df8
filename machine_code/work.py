"""What the model of a launch takes of a kernel."""

from collections import Counter
from typing import NamedTuple

from machine_code.control_flow import Code, is_mask_access
from machine_code.machines import by_pipe
from machine_code.vector_kernels import VectorKernel

REGISTERS, WARPS = 65536, 64  # of a processor


class Work(NamedTuple):
    """Of a thread's turn: it loads, computes and stores, as a whole or once round a loop."""

    registers: int
    block_warps: int
    elements: float
    slots: float  # instructions
    around: int  # instructions outside of the loop
    mask_accesses: int
    adds_partials: int  # 1 if the last block adds the partial sums of all
    instructions: dict[str, float]  # by pipe, and IMAD apart, which are among the FMA's
    # Turns between a copy into shared memory and its wait; 0 if a turn waits for its own loads.
    turns_ahead: int = 0

    @property
    def resident_blocks(self) -> int:
        """On a processor. Registers are allocated by eights for a thread."""
        of_warp = -(-self.registers // 8) * 8 * 32
        return min(WARPS, REGISTERS // of_warp) // self.block_warps

    @property
    def resident_warps(self) -> int:
        return self.resident_blocks * self.block_warps


def work_of(x: VectorKernel, architecture: str) -> Work:
    names = Counter(instruction.name for instruction in x.path)
    return Work(
        x.kernel.registers,
        x.kernel.threads // 32,
        x.vectors * 16 // x.case.itemsize,
        *(len(x.path), len(x.around), sum(map(is_mask_access, x.path))),
        int(x.case.has_sums and any(i.name in ("ATOM", "ATOMG") for i in x.kernel.instructions)),
        by_pipe(architecture, names),
        turns_ahead(x.path),
    )


def turns_ahead(turn: Code) -> int:
    """Copies are in groups. A wait leaves the newest ones under way, as many as it names."""
    groups = sum(instruction.name == "LDGDEPBAR" for instruction in turn)
    left = [int(x.operands.split(",")[1], 0) for x in turn if x.name == "DEPBAR"]
    return (min(left) + 1) // groups if groups and left else 0
