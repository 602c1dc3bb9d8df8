"""The instructions that a thread issues for an element in a kernel on rows of 16-byte vectors."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from machine_code.cases import CASES, KERNELS, VECTOR_BYTES, Case
from machine_code.control_flow import Code, ControlFlow, is_wide, is_wide_load, narrow_accesses
from machine_code.cuda_code import CLASSES
from machine_code.data_flow import registers, written
from machine_code.sass import Kernel


def waits_on_loads(path: Code) -> list[int]:
    """For each wait on loads that no earlier wait covered, the number of instructions since the
    load. Empty if a loop loads for the next round."""
    waits, new = [], {}
    for at, instruction in enumerate(path):
        used = new.keys() & registers(instruction.operands)
        if used:
            waits.append(at - max(new[register] for register in used))
            new = {}
        if is_wide_load(instruction):
            new |= dict.fromkeys(written(instruction), at)
    return waits


@dataclass(frozen=True)
class VectorKernel:
    case: Case
    kernel: Kernel

    @cached_property
    def _paths(self) -> tuple[Code, Code]:
        flow = ControlFlow(self.kernel.instructions)
        if self.case.has_sums:
            return flow.vector_loop()
        return flow.vector_path(), []

    @property
    def path(self) -> Code:
        """The instructions from the entry to the exit, or once round the loop."""
        return self._paths[0]

    @property
    def around(self) -> Code:
        """The instructions outside of the loop."""
        return self._paths[1]

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
            accesses -= Counter({"LDG.E.U8": self.stores, "LDG.E": 1})
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
        """The largest number of vectors being loaded at a time. Those that are copied into shared
        memory are under way until the next turn."""
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
        return waits_on_loads(self.path)

    def _per_element(self, count: int) -> float:
        elements = self.vectors * VECTOR_BYTES // self.case.itemsize
        return count / elements if elements else math.inf


TYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# By the class of a function that is mapped.
FUNCTIONS = {
    "".join(map(str.capitalize, op.name.removeprefix("gate_").split("_"))): op.name
    for op in KERNELS
}

GATE, TYPE = r"(?P<gate>\w+)", r"(?P<dtype>\w+)"
OF_GATE, SUMS = rf"<{GATE}, \w+>", rf"{TYPE}, Consecutive<"
# CUDA's kernels: the pattern of a name, and what it serves, an operator with or without vectors
# along the columns. The name itself may say either.
SERVED: dict[str, list[tuple[str | None, bool | None]]] = {
    rf"map_rows<CdfForward{OF_GATE}, {TYPE},": [("cdf_gate_forward", True)],
    rf"map_rows<(?P<bias>AddBias<)?(?P<function>\w+){OF_GATE}[ >]*, {TYPE},": [(None, None)],
    rf"sum_columns<WithLocationAndScale<{GATE}>, {SUMS}": [("cdf_gate_backward", True)],
    rf"sum_columns<WithDropout<{GATE}>, {SUMS}": [("gate_dropout_backward_bias", True)],
    rf"sum_columns<Mask, {SUMS}": [("soi_backward_bias", True)],
    rf"sum_columns<Code, {SUMS}": [("coded_backward_bias", True)],
    rf"sum_columns<(?!Mask|Code){GATE}, {SUMS}": [("gate_backward_bias", True)],
    rf"glu_rows<GluRowsForward{OF_GATE}, {SUMS}": [("glu_forward", True)],
    rf"glu_rows<GluRowsBackward{OF_GATE}, {SUMS}": [("glu_backward_weight", True)],
    rf"draw_rows<{GATE}, {TYPE}, Alone>": [("soi_forward", False)],
    rf"draw_rows<{GATE}, {TYPE}, WithBias>": [("soi_forward", True)],
    rf"draw_rows<{GATE}, {TYPE}, WithParameters>": [("soi_cdf_forward", True)],
    rf"select_vectors<{TYPE}>": [("soi_backward", False)],
    rf"draw_dropout<{GATE}, {TYPE}, 0>": [("gate_dropout_forward", False)],
    rf"draw_dropout<{GATE}, {TYPE}, 1>": [("gate_dropout_forward", True)],
    rf"draw_dropout<{GATE}, {TYPE}, 2>": [("glu_dropout_forward", False)],
    rf"select_gradients<Backward{OF_GATE}, {TYPE}, false>": [("gate_dropout_backward", False)],
    rf"select_gradients<Backward{OF_GATE}, {TYPE}, true>": [("gate_dropout_backward", True)],
    rf"select_gradients<GluBackward{OF_GATE}, {TYPE}, false>": [("glu_dropout_backward", False)],
    rf"map_octets<{GATE}, {TYPE}, false>": [("coded_forward", False)],
    rf"map_octets<{GATE}, {TYPE}, true>": [("coded_forward", True)],
    rf"multiply_octets<{TYPE}>": [("coded_backward", False)],
}


def cuda_cases(name: str) -> list[Case]:
    for pattern, served in SERVED.items():
        if m := re.match(pattern, name):
            found = m.groupdict()
            gate, dtype = CLASSES.get(found.get("gate"), ""), TYPES[found["dtype"]]
            return [
                Case(
                    op or FUNCTIONS[found["function"]],
                    *(gate, dtype, bool(found["bias"]) if biased is None else biased, "cuda"),
                )
                for op, biased in served
            ]
    return []


def vector_kernels(kernels: Iterable[Kernel], cases: list[Case] = CASES) -> list[VectorKernel]:
    in_triton = {case.name: case for case in cases if case.backend == "triton"}
    wanted = set(cases)
    return [
        VectorKernel(case, kernel)
        for kernel in kernels
        for case in (
            [in_triton[kernel.name]] if kernel.name in in_triton else cuda_cases(kernel.name)
        )
        if case in wanted
    ]


def busiest(kernels: Iterable[VectorKernel]) -> dict[Case, VectorKernel]:
    """The kernel of a case for large tensors: the one with the most rows for a thread."""
    return {x.case: x for x in sorted(kernels, key=lambda x: x.vectors)}
