"""The instructions that a thread issues for an element in CUDA's kernels that quantise their
results. What shares a scale, and the directions of MX blocks, are chosen at run time, so each has
its own path through a kernel."""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from machine_code import cuda_code
from machine_code.control_flow import Code, ControlFlow, Score, is_issued, is_wide_load
from machine_code.cuda_code import CLASSES
from machine_code.machines import by_pipe
from machine_code.sass import Instruction, Kernel
from machine_code.vector_kernels import TYPES, waits_on_loads
from machine_code.work import Work

ALONG = ("row", "column", "both")  # of MX blocks
# The scalings whose scales are floats, in forward passes alone: the bytes of scales for an element,
# and how the name of an instruction ends that only this path through a tile's kernel has.
FLOATS = {"TensorWise": (0.0, "REDUX"), "RowWise": (0.0, ""), "BlockWise1x128": (4 / 128, "BAR")}
MARKS = tuple(mark for _, mark in FLOATS.values() if mark)
ROWS = 8  # of a lane, a vector in each
COLUMNS = 4096  # of the tensors
ROW_VECTORS = 4  # of a thread that has a part of one row, in blocks as large as the row


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
    recipe: str  # one of ALONG or FLOATS

    @property
    def itemsize(self) -> int:
        return 2 if self.dtype == "bfloat16" else 4

    @property
    def read(self) -> float:
        """Bytes of an element."""
        return PASSES[self.operation].read * self.itemsize

    @property
    def written(self) -> float:
        """Results and their scales, in each direction."""
        directions = 2 if self.recipe == "both" else 1
        scales, _ = FLOATS.get(self.recipe, (1 / 32, ""))
        return PASSES[self.operation].results * directions * (1 + scales)

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
    warps: int  # of a block

    @property
    def slots(self) -> float:
        return len(self.code) / self.elements

    @property
    def instructions(self) -> dict[str, float]:
        counts = Counter(instruction.name for instruction in self.code)
        return {name: count / self.elements for name, count in counts.items()}

    @property
    def waits(self) -> int:
        """For loads."""
        return len(waits_on_loads(self.code))

    def work(self, architecture: str) -> Work:
        """Without what is outside of a loop. A turn is what it loads and waits for at a time."""
        turns = self.waits
        names = Counter(instruction.name for instruction in self.code)
        pipes = by_pipe(architecture, {name: count / turns for name, count in names.items()})
        slots, elements = len(self.code) / turns, self.elements / turns
        return Work(self.kernel.registers, self.warps, elements, slots, 0, 0, 0, pipes)


def stores_numbers(instruction: Instruction) -> bool:
    """Eight bytes, or four, which are a vector of float32 along a row."""
    return re.fullmatch(r"STG\.E(\.64)?", instruction.opcode) is not None


def tile_score(mark: str) -> Callable[[Instruction], Score]:
    """Prefers many wide loads, then this mark and no other, then few instructions."""

    def score(x: Instruction) -> Score:
        is_marked = x.name.endswith(mark) if mark else -x.name.endswith(MARKS)
        return is_wide_load(x), is_marked, -is_issued(x)

    return score


def paths_of(kernel: Kernel, vector: int, results: int, has_sums: bool) -> dict[str, Code]:
    """By recipe. A store along a column has eight rows."""
    counts = {"row": ROWS, "column": vector, "both": ROWS + vector}
    flow = ControlFlow(kernel.instructions)
    if has_sums:  # once round the loop over bands of rows
        edge = max(flow.back_edges, key=lambda edge: edge[0] - edge[1])
        start, ends = edge[1], {edge[0]}
    else:
        start, ends = 0, flow.exits
    most = results * counts["both"]
    found = flow.best_paths(start, ends, tile_score(""), stores_numbers, most)
    paths = {along: found[results * count] for along, count in counts.items()}
    names = {x.name for x in kernel.instructions}
    for scaling, (_, mark) in FLOATS.items():
        if mark and any(name.endswith(mark) for name in names):
            marked = flow.best_paths(0, flow.exits, tile_score(mark), stores_numbers, ROWS)
            paths[scaling] = marked[ROWS]
    return paths


def row_path(kernel: Kernel) -> Code:
    """Twice round the loop: to find the row's largest magnitude, and to store."""
    flow = ControlFlow(kernel.instructions)
    latch, header = max(flow.back_edges, key=lambda edge: edge[0] - edge[1])
    first = flow.best_paths(0, {latch}, tile_score(""))[0]
    second = flow.best_paths(
        *(header, flow.exits, lambda x: (-is_wide_load(x), -is_issued(x))),
        *(stores_numbers, ROW_VECTORS),
    )
    return first + second[ROW_VECTORS]


def measured(architecture: str) -> dict[Cell, Path]:
    """Where a column takes as many stores as a row, the shorter way stands for both."""
    found = {}
    for kernel in cuda_code.kernels(architecture):
        pattern = (
            r"quantize_(tiles|rows)<(?:AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+), (\d)(?:, \D*(\d))?>"
        )
        if not (m := re.match(pattern, kernel.name)):
            continue
        shape, function, gate, dtype, columns, number = m.groups()
        name = NAMES[function, columns, number or "0"]
        gate, dtype = CLASSES[gate], TYPES[dtype]
        _, read, results = PASSES[name]
        vector = 8 if dtype == "bfloat16" else 4
        if shape == "rows":
            paths = {"RowWise": row_path(kernel)}
            vectors, warps = ROW_VECTORS, COLUMNS // (32 * ROW_VECTORS * vector)
        else:
            paths = paths_of(kernel, vector, results, name.endswith("gradient"))
            vectors, warps = ROWS, kernel.threads // 32
        for recipe, code in paths.items():
            if sum(map(is_wide_load, code)) >= vectors * read:
                path = Path(kernel, code, vectors * vector, warps)
                found[Cell(name, gate, dtype, recipe)] = path
                if name == "forward with a bias" and dtype == "float32":  # it may be missing
                    found[Cell("forward", gate, dtype, recipe)] = path
    return found
