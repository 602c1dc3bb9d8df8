"""The instructions that a thread issues for an element in a kernel on rows of 16-byte vectors."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from machine_code.cases import CASES, GATES, OPERATORS, VECTOR_BYTES, Case
from machine_code.control_flow import Code, ControlFlow, is_wide, is_wide_load, narrow_accesses
from machine_code.data_flow import registers, written
from machine_code.sass import Kernel


@dataclass(frozen=True)
class VectorKernel:
    case: Case
    kernel: Kernel

    @cached_property
    def path(self) -> Code:
        """The instructions from the entry to the exit, or once round the loop."""
        flow = ControlFlow(self.kernel.instructions)
        return flow.vector_loop() if self.case.has_sums else flow.vector_path()

    @cached_property
    def loads(self) -> int:
        return sum(map(is_wide_load, self.path))

    @cached_property
    def stores(self) -> int:
        return sum(map(is_wide, self.path)) - self.loads

    @property
    def vectors(self) -> int:
        """The vectors of elements, as many as an output has stores."""
        return self.stores // self.case.outputs

    @property
    def narrow_accesses(self) -> int:
        """Without the seed of a mask, and at most a mask byte or a weight for each vector."""
        opcodes = (instruction.opcode for instruction in narrow_accesses(self.path))
        accesses = Counter(opcode.replace(".S8", ".U8") for opcode in opcodes)
        if "seed" in self.case.operator.inputs:
            accesses -= Counter({"LDG.E.64": 1, "STG.E.U8": self.stores})
        elif self.case.has_mask:
            accesses -= Counter({"LDG.E.U8": self.stores})
        if self.case.has_weights:
            weights = sum(n for opcode, n in accesses.items() if opcode.startswith("LDG"))
            return accesses.total() - min(weights, self.stores)
        return accesses.total()

    @property
    def slots(self) -> float:
        """An instruction takes one, even on a pair of floats (FFMA2)."""
        return self._per_element(len(self.path))

    @property
    def mufu(self) -> float:
        return self.instructions.get("MUFU", 0)

    @property
    def instructions(self) -> dict[str, float]:
        """For an element, by name."""
        counts = Counter(instruction.name for instruction in self.path)
        return {name: self._per_element(count) for name, count in counts.items()}

    @property
    def loads_in_flight(self) -> int:
        """The largest number of vectors being loaded at a time."""
        most, under_way = 0, []
        for instruction in self.path:
            used = registers(instruction.operands)
            under_way = [vector for vector in under_way if not vector & used]
            if is_wide_load(instruction):
                under_way.append(written(instruction))
                most = max(most, len(under_way))
        return most

    @cached_property
    def waits(self) -> list[int]:
        """For each wait on loads that no earlier wait covered, the number of instructions since the
        load. Empty if a loop loads for the next round."""
        waits, new = [], {}
        for at, instruction in enumerate(self.path):
            used = new.keys() & registers(instruction.operands)
            if used:
                waits.append(at - max(new[register] for register in used))
                new = {}
            if is_wide_load(instruction):
                new |= dict.fromkeys(written(instruction), at)
        return waits

    def _per_element(self, count: int) -> float:
        elements = self.vectors * VECTOR_BYTES // self.case.itemsize
        return count / elements if elements else math.inf


# The kernels of CUDA by the class of their function, or else by their own name. Their arguments are
# gates, dtypes, and whether there is a bias.
FUNCTIONS = {
    "".join(map(str.capitalize, op.name.removeprefix("gate_").split("_"))): op.name
    for op in OPERATORS
}
TYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
CLASSES = {"".join(map(str.capitalize, gate.split("_"))): gate for gate in GATES}


def cuda_case(name: str) -> Case | None:
    def case(op: str, gate: str | None, dtype: str, biased: bool) -> Case:
        return Case(op, CLASSES.get(gate, ""), TYPES[dtype], biased, "cuda")

    if m := re.match(r"map_rows<CdfForward<(\w+), \w+>, (\w+),", name):
        return case("cdf_gate_forward", *m.groups(), True)
    if m := re.match(r"sum_columns<WithLocationAndScale<(\w+)>, (\w+), Consecutive<", name):
        return case("cdf_gate_backward", *m.groups(), True)
    if m := re.match(r"map_rows<(AddBias<)?(\w+)<(\w+), \w+>[ >]*, (\w+),", name):
        return case(FUNCTIONS[m[2]], m[3], m[4], bool(m[1]))
    if m := re.match(r"glu_rows<GluRows(\w+)<(\w+), \w+>, (\w+), Consecutive<", name):
        op = {"Forward": "glu_forward", "Backward": "glu_backward_weight"}[m[1]]
        return case(op, m[2], m[3], True)
    if m := re.match(r"sum_columns<(?!Code,)(\w+), (\w+), Consecutive<", name):
        return case(
            "soi_backward_bias" if m[1] == "Mask" else "gate_backward_bias", *m.groups(), True
        )
    if m := re.match(r"draw_rows<(\w+), (\w+), (\w+)>", name):
        op = "soi_cdf_forward" if m[3] == "WithParameters" else "soi_forward"
        return case(op, m[1], m[2], m[3] != "Alone")
    if m := re.match(r"select_vectors<(\w+)>", name):
        return case("soi_backward", None, m[1], False)
    return None


def vector_kernels(kernels: Iterable[Kernel]) -> list[VectorKernel]:
    in_triton = {case.name: case for case in CASES if case.backend == "triton"}
    found = ((in_triton.get(kernel.name) or cuda_case(kernel.name), kernel) for kernel in kernels)
    return [VectorKernel(case, kernel) for case, kernel in found if case]


def busiest(kernels: Iterable[VectorKernel]) -> dict[Case, VectorKernel]:
    """The kernel of a case for large tensors: the one with the most rows for a thread."""
    return {x.case: x for x in sorted(kernels, key=lambda x: x.vectors)}
