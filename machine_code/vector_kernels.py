"""What a thread issues for an element in a kernel that works on rows of 16-byte vectors."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from machine_code.cases import BYTES, CASES, GATES, OUTPUTS, VECTOR_BYTES, Case
from machine_code.control_flow import Code, ControlFlow, is_wide, narrow_accesses
from machine_code.sass import Kernel


@dataclass(frozen=True)
class VectorKernel:
    case: Case
    kernel: Kernel

    @cached_property
    def path(self) -> Code:
        """What is issued from the entry to the exit, or once round the loop."""
        flow = ControlFlow(self.kernel.instructions)
        return flow.vector_loop() if "column_sums" in self.case.op else flow.vector_path()

    @property
    def loads(self) -> int:
        return self._wide("LDG")

    @property
    def stores(self) -> int:
        return self._wide("STG")

    @property
    def vectors(self) -> int:
        """Those of elements: each output has so many stores."""
        return self.stores // OUTPUTS[self.case.op]

    @property
    def narrow_accesses(self) -> int:
        """But for the seed of a mask, and a byte of the mask for each vector at the most."""
        opcodes = (instruction.opcode for instruction in narrow_accesses(self.path))
        accesses = Counter(opcode.replace(".S8", ".U8") for opcode in opcodes)
        needed = {"soi_forward": {"LDG.E.64": 1, "STG.E.U8": self.stores}}
        if self.case.op.startswith("soi_"):
            accesses -= Counter(needed.get(self.case.op, {"LDG.E.U8": self.stores}))
        return accesses.total()

    @property
    def slots(self) -> float:
        """An instruction takes one, also if it is for a pair of floats (FFMA2)."""
        return self._per_element(len(self.path))

    @property
    def mufu(self) -> float:
        return self._per_element(sum(instruction.name == "MUFU" for instruction in self.path))

    @property
    def instructions(self) -> dict[str, float]:
        """For an element, by name."""
        counts = Counter(instruction.name for instruction in self.path)
        return {name: self._per_element(count) for name, count in counts.items()}

    @property
    def loads_in_flight(self) -> int:
        """The most vectors that are under way at a time, none of them waited for."""
        most, under_way = 0, []
        for instruction in self.path:
            used = set(re.findall(r"\bR(\d+)", instruction.operands))
            under_way = [registers for registers in under_way if not registers & used]
            if is_wide(instruction) and instruction.name == "LDG":
                first = int(re.match(r"R(\d+)", instruction.operands)[1])
                under_way.append({str(first + i) for i in range(4)})
                most = max(most, len(under_way))
        return most

    @property
    def branches(self) -> int:
        """Those on what was loaded: of the threads of a warp, some may go the other way."""
        wide = [i for i, instruction in enumerate(self.path) if is_wide(instruction)]
        last_load = max((i for i in wide if self.path[i].name == "LDG"), default=0)
        last_store = max((i for i in wide if self.path[i].name == "STG"), default=0)
        return sum(instruction.name == "BRA" for instruction in self.path[last_load:last_store])

    def _wide(self, name: str) -> int:
        return sum(is_wide(x) and x.name == name for x in self.path)

    def _per_element(self, count: int) -> float:
        elements = self.vectors * VECTOR_BYTES // BYTES[self.case.dtype]
        return count / elements if elements else math.inf


def vector_kernels(kernels: Iterable[Kernel]) -> list[VectorKernel]:
    operators = {
        "Forward": "forward",
        "Backward": "backward",
        "DoubleBackward": "double_backward",
        "GluForward": "glu_forward",
        "GluBackward": "glu_backward",
    }
    in_triton = {case.name: case for case in CASES if case.backend == "triton"}
    found = []
    for kernel in kernels:
        if m := re.match(r"map_rows<(AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+),", kernel.name):
            case = Case(operators[m[2]], m[3], m[4], bool(m[1]), "cuda")
            found.append(VectorKernel(case, kernel))
        elif m := re.match(rf"sum_columns<({'|'.join(GATES)}), (\w+), Consecutive<", kernel.name):
            found.append(VectorKernel(Case("column_sums", m[1], m[2], True, "cuda"), kernel))
        elif m := re.match(r"draw_vectors<(\w+), (\w+), (\w+)>", kernel.name):
            case = Case("soi_forward", m[1], m[2], m[3] == "true", "cuda")
            found.append(VectorKernel(case, kernel))
        elif m := re.match(r"select_vectors<(\w+)>", kernel.name):
            found.append(VectorKernel(Case("soi_backward", "", m[1], False, "cuda"), kernel))
        elif m := re.match(r"sum_columns<Mask, (\w+), Consecutive<", kernel.name):
            found.append(VectorKernel(Case("soi_column_sums", "", m[1], True, "cuda"), kernel))
        elif case := in_triton.get(kernel.name):
            found.append(VectorKernel(case, kernel))
    return found


def busiest(kernels: Iterable[VectorKernel]) -> dict[Case, VectorKernel]:
    """Of the kernels of a case, the one with the most rows for a thread: that of large tensors."""
    return {x.case: x for x in sorted(kernels, key=lambda x: x.stores)}
