"""The instructions that a thread issues for an element in CUDA's kernels that quantise their
results. What shares a scale, and the directions, are chosen at run time, so each recipe has its own
path through a kernel."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from machine_code import cuda_code
from machine_code.control_flow import Code, ControlFlow, Score, is_issued, is_wide_load
from machine_code.cuda_code import CLASSES
from machine_code.machines import by_pipe
from machine_code.sass import Instruction, Kernel
from machine_code.vector_kernels import TYPES, waits_on_loads
from machine_code.work import Work

ALONG = ("row", "column", "both")
SCALE_BYTES = {
    "BlockWise1x32": 1 / 32,
    "TensorWise": 0.0,
    "RowWise": 0.0,
    "BlockWise1x128": 4 / 128,
}
ROWS = 8  # of a lane, a vector in each
ROW_VECTORS = 4  # of a thread that has a part of one row, in blocks as large as the row
COLUMNS = 4096  # of the tensors


class Pass(NamedTuple):
    arguments: tuple[str, str, str]  # of the kernel's template
    read: int  # matrices
    results: int


PASSES = {
    "forward": Pass(("Forward", "0", "0"), 1, 1),
    "forward with a bias": Pass(("Forward", "1", "0"), 1, 1),
    "GLU forward": Pass(("GluRowsForward", "0", "0"), 2, 1),
    "backward": Pass(("Backward", "1", "1"), 2, 1),
    "backward with a bias gradient": Pass(("Backward", "1", "2"), 2, 1),
    "GLU backward": Pass(("GluRowsBackward", "0", "1"), 3, 2),
    "cast": Pass(("Cast", "0", "1"), 1, 1),
}
NAMES = {found.arguments: name for name, found in PASSES.items()}


class Cell(NamedTuple):
    operation: str
    gate: str
    dtype: str
    scaling: str
    along: str
    # RowWise along columns reads its inputs twice: one launch finds amax, which is known to the
    # other.
    launch: str = ""

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
        if self.launch == "amax":
            return 0
        directions = 2 if self.along == "both" else 1
        return PASSES[self.operation].results * directions * (1 + SCALE_BYTES[self.scaling])

    @property
    def moved(self) -> float:
        """Bytes that an element passes through memory."""
        return self.read + self.written

    @property
    def whole(self) -> "Cell":
        return self._replace(launch="")

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


def exchanges(instruction: Instruction, lanes: str) -> bool:
    """For the largest magnitude of a row the nearest lanes exchange, for that of a column the lanes
    below each other."""
    is_butterfly = instruction.opcode == "SHFL.BFLY"
    return is_butterfly and f",{lanes},0x1f" in instruction.operands


def score_of(scaling: str, along: str, launch: str) -> Callable[[Instruction], Score]:
    """Prefers many wide loads, then what only this recipe's path has to what only others have, then
    few instructions. Warps of a block of threads meet at a barrier, or a warp hands scales of its
    own on. A division makes a scale a float."""
    meets = scaling in ("BlockWise1x128", "RowWise")
    wants_row, wants_column = along != "column", along != "row"

    def score(x: Instruction) -> Score:
        meeting = (x.name == "BAR") * (1 if meets else -1) - (x.opcode == "SHFL.UP")  # of groups
        if scaling != "BlockWise1x32":
            meeting -= x.opcode == "SHFL.IDX"
        rows, columns = exchanges(x, "0x1"), exchanges(x, "0x10")
        if scaling == "TensorWise" or launch == "known":
            searched = (x.name == "REDUX") * (1 if scaling == "TensorWise" else -1) - rows - columns
        else:
            searched = rows * (1 if wants_row else -1) + columns * (1 if wants_column else -1)
        collected = (x.name in ("RED", "ATOMG")) * (1 if launch == "amax" else -1)
        floats = (x.name == "MUFU") * (1 if meets else 0)
        return is_wide_load(x), meeting, collected, searched, floats, -is_issued(x)

    return score


def paths_of(kernel: Kernel, cell: Cell, vector: int) -> Code | None:
    """A store along a column has eight rows."""
    counts = {"row": ROWS, "column": vector, "both": ROWS + vector}
    flow, score = ControlFlow(kernel.instructions), score_of(*cell[3:])
    count = 0 if cell.launch == "amax" else counts[cell.along]
    storing = [
        edge
        for edge in flow.back_edges
        if any(map(stores_numbers, kernel.instructions[edge[1] : edge[0]]))
    ]
    if cell.has_sums:  # once round the loop over tiles of rows, which stores partial sums
        edge = max(storing, key=lambda edge: edge[0] - edge[1])
        return flow.best_paths(edge[1], {edge[0]}, score, stores_numbers, count + 1).get(count + 1)
    path = flow.best_paths(0, flow.exits, score, stores_numbers, count).get(count)
    if path and PASSES[cell.operation].results == 2:  # once more round the loop over results
        latch, header = max(storing, key=lambda edge: edge[0] - edge[1])
        path += flow.best_paths(header, {latch}, score, stores_numbers, count)[count]
    return path


def row_path(kernel: Kernel, of: Pass) -> Code:
    """Twice round the loop: to find the row's largest magnitude, and to store."""
    flow = ControlFlow(kernel.instructions)
    score = score_of("RowWise", "row", "")
    latch, header = max(flow.back_edges, key=lambda edge: edge[0] - edge[1])
    first = flow.best_paths(0, {latch}, lambda x: (is_wide_load(x), *score(x)[1:]))[0]
    second = flow.best_paths(
        *(header, flow.exits, lambda x: (-is_wide_load(x), -is_issued(x))),
        *(stores_numbers, ROW_VECTORS * of.results),
    )
    return first + second[ROW_VECTORS * of.results]


def recipes_of(operation: str) -> list[tuple[str, str, str]]:
    """Of the kernels that go tile by tile: scaling, direction and launch."""
    blocks = [(f"BlockWise1x{block}", along, "") for block in (32, 128) for along in ALONG]
    if operation.endswith("gradient"):
        return blocks
    twice = [("RowWise", along, launch) for along in ALONG[1:] for launch in ("amax", "known")]
    given = [("TensorWise", "row", "")] if "forward" in operation else []
    return blocks + twice + given


def warps_of(cell: Cell) -> int:
    """Of a block. A block of numbers along a row has parts in two tiles, or four of float32; along
    a column in four, and a sum of a column is over four at a time."""
    is_wide = cell.scaling in ("BlockWise1x128", "RowWise") and cell.along != "column"
    if is_wide and (cell.along == "both" or cell.has_sums):
        return 4 * (2 if cell.dtype == "bfloat16" else 4)
    return 4


def whole(launches: Mapping[Cell, Path]) -> dict[Cell, dict[Cell, Path]]:
    """The launches of each call."""
    found = defaultdict(dict)
    for cell, path in launches.items():
        found[cell.whole][cell] = path
    return dict(found)


def measured(architecture: str) -> dict[Cell, Path]:
    """By launch. Where a column takes as many stores as a row, the shorter way stands for both, if
    nothing else tells them apart."""
    found = {}
    for kernel in cuda_code.kernels(architecture):
        pattern = (
            r"quantize_(tiles|rows)<(?:AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+), (\d)(?:, \D*(\d))?>"
        )
        if not (m := re.match(pattern, kernel.name)):
            continue
        shape, function, gate, dtype, columns, number = m.groups()
        vector = 8 if TYPES[dtype] == "bfloat16" else 4
        for name, of in PASSES.items():
            if of.arguments != (function, columns, number or of.arguments[2]):
                continue
            if shape == "rows" and name.endswith("gradient"):
                continue
            key = name, CLASSES[gate] if name != "cast" else "", TYPES[dtype]
            is_row = shape == "rows"
            recipes = [("RowWise", "row", "")] if is_row else recipes_of(name)
            vectors = ROW_VECTORS if is_row else ROWS
            for cell in (Cell(*key, *recipe) for recipe in recipes):
                code = row_path(kernel, of) if is_row else paths_of(kernel, cell, vector)
                if not code or sum(map(is_wide_load, code)) < vectors * of.read:
                    continue
                warps = COLUMNS // (32 * vectors * vector) if is_row else warps_of(cell)
                path = Path(kernel, code, vectors * vector, warps)
                found[cell] = path
                if name == "forward with a bias" and vector == 4:  # it may be missing
                    found[cell._replace(operation="forward")] = path
    return found
