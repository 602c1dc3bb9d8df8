"""The instructions that a thread issues for an element in CUDA's kernels that quantise their
results in MX blocks. The directions are chosen at run time, so each has its own path through the
kernel."""

import re
from collections import Counter
from typing import NamedTuple

from machine_code import cuda_code
from machine_code.control_flow import Code, ControlFlow, Score, is_issued, is_wide_load
from machine_code.machines import by_pipe
from machine_code.sass import Instruction, Kernel
from machine_code.vector_kernels import CLASSES, TYPES
from machine_code.work import Work

ALONG = ("row", "column", "both")
ROWS = 8  # of a lane, a vector in each


class Pass(NamedTuple):
    arguments: tuple[str, str, str]  # of the kernel's template
    read: int  # matrices
    results: int


PASSES = {
    "forward": Pass(("Forward", "0", "0"), 1, 1),
    "forward with a bias": Pass(("Forward", "1", "0"), 1, 1),
    "GLU forward": Pass(("GluForward", "0", "0"), 2, 1),
    "backward": Pass(("Backward", "1", "1"), 2, 1),
    "backward with a bias gradient": Pass(("Backward", "1", "2"), 2, 1),
    "GLU backward": Pass(("GluBackward", "0", "1"), 3, 2),
}
NAMES = {found.arguments: name for name, found in PASSES.items()}


class Cell(NamedTuple):
    operation: str
    gate: str
    dtype: str
    along: str

    @property
    def itemsize(self) -> int:
        return 2 if self.dtype == "bfloat16" else 4

    @property
    def read(self) -> float:
        """Bytes of an element."""
        return PASSES[self.operation].read * self.itemsize

    @property
    def written(self) -> float:
        """A result and a scale for 32 of them, in each direction."""
        directions = 2 if self.along == "both" else 1
        return PASSES[self.operation].results * directions * (1 + 1 / 32)

    @property
    def moved(self) -> float:
        """Bytes that an element passes through memory."""
        return self.read + self.written

    # As a Case has them.
    backend, has_seed = "cuda", False

    @property
    def has_sums(self) -> bool:
        return self.operation.endswith("gradient")

    @property
    def column_sums(self) -> int:
        return int(self.has_sums)


class Path(NamedTuple):
    kernel: Kernel
    code: Code
    elements: int  # of a thread

    @property
    def slots(self) -> float:
        return len(self.code) / self.elements

    @property
    def instructions(self) -> dict[str, float]:
        counts = Counter(instruction.name for instruction in self.code)
        return {name: count / self.elements for name, count in counts.items()}

    def work(self, architecture: str) -> Work:
        """Without what is outside of a loop."""
        names = Counter(instruction.name for instruction in self.code)
        kernel, pipes = self.kernel, by_pipe(architecture, names)
        threads, slots = kernel.threads, len(self.code)
        return Work(kernel.registers, threads // 32, self.elements, slots, 0, 0, 0, pipes)


def stores_numbers(instruction: Instruction) -> bool:
    """Eight bytes, or four, which are a vector of float32 along a row."""
    return re.fullmatch(r"STG\.E(\.64)?", instruction.opcode) is not None


def tile_score(instruction: Instruction) -> Score:
    """Prefers many wide loads, then few instructions."""
    return is_wide_load(instruction), -is_issued(instruction)


def paths_of(kernel: Kernel, dtype: str, results: int, has_sums: bool) -> dict[str, Code]:
    """By direction. A store along a column has eight rows."""
    columns = 8 if dtype == "bfloat16" else 4
    counts = {"row": ROWS, "column": columns, "both": ROWS + columns}
    flow = ControlFlow(kernel.instructions)
    if has_sums:  # once round the loop over bands of rows
        edge = max(flow.back_edges, key=lambda edge: edge[0] - edge[1])
        start, ends = edge[1], {edge[0]}
    else:
        start, ends = 0, flow.exits
    most = results * counts["both"]
    found = flow.best_paths(start, ends, tile_score, stores_numbers, most)
    return {along: found[results * count] for along, count in counts.items()}


def measured(architecture: str) -> dict[Cell, Path]:
    """Where a column takes as many stores as a row, the shorter way stands for both."""
    found = {}
    for kernel in cuda_code.kernels(architecture):
        pattern = r"quantize_tiles<(?:AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+), (\d), \D*(\d)>"
        if not (m := re.match(pattern, kernel.name)):
            continue
        function, gate, dtype, columns, number = m.groups()
        name, gate, dtype = NAMES[function, columns, number], CLASSES[gate], TYPES[dtype]
        _, read, results = PASSES[name]
        elements = ROWS * (8 if dtype == "bfloat16" else 4)
        for along, code in paths_of(kernel, dtype, results, name.endswith("gradient")).items():
            if sum(map(is_wide_load, code)) >= ROWS * read:
                found[Cell(name, gate, dtype, along)] = Path(kernel, code, elements)
                if name == "forward with a bias" and dtype == "float32":  # it may be missing
                    found[Cell("forward", gate, dtype, along)] = Path(kernel, code, elements)
    return found
