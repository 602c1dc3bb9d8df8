"""Paths through the instructions of a kernel."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from operator import add

from machine_code.sass import Instruction

Code = list[Instruction]
Score = tuple[int, ...]


def is_global_access(instruction: Instruction) -> bool:
    return instruction.name in ("LDG", "LDGSTS", "STG", "LD", "ST", "ATOM", "ATOMG", "RED")


def is_wide(instruction: Instruction) -> bool:
    """Of 16 bytes, in global memory."""
    return instruction.name in ("LDG", "LDGSTS", "STG") and ".128" in instruction.opcode


def is_wide_load(instruction: Instruction) -> bool:
    """Into registers, or a copy into shared memory."""
    return instruction.name in ("LDG", "LDGSTS") and is_wide(instruction)


def is_mask_access(instruction: Instruction) -> bool:
    """Of a byte, or of up to four that are stored together."""
    name, _, width = instruction.opcode.partition(".")
    is_byte = re.search(r"\.[US]8\b", instruction.opcode) is not None
    return (name == "LDG" and is_byte) or (name == "STG" and not re.search(r"\.(64|128)", width))


class ControlFlow:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.successors = self._successors()
        self.order, self.back_edges = self._depth_first()

    def _successors(self) -> list[list[int]]:
        joins = defaultdict(set)  # where threads that wait at a barrier continue
        for instruction in self.code:
            if instruction.name == "BSSY":
                joins[instruction.operands.split(",")[0]].add(instruction.target)
        successors = []
        for i, instruction in enumerate(self.code):
            after = {i + 1} if instruction.falls_through and i + 1 < len(self.code) else set()
            if instruction.name == "BSYNC":
                targets = joins[instruction.operands.split(",")[0]]
                after = after & targets or targets
            elif instruction.name != "BSSY" and instruction.target is not None:
                after = after | {instruction.target}
            successors.append(sorted(after))
        return successors

    def _depth_first(self) -> tuple[list[int], set[tuple[int, int]]]:
        """Reachable instructions in postorder, and the back edges of loops."""
        order, back_edges = [], set()
        open_, seen = {0}, {0}
        stack = [(0, iter(self.successors[0]))]
        while stack:
            i, rest = stack[-1]
            for j in rest:
                if j in open_:
                    back_edges.add((i, j))
                elif j not in seen:
                    seen.add(j)
                    open_.add(j)
                    stack.append((j, iter(self.successors[j])))
                    break
            else:
                stack.pop()
                open_.remove(i)
                order.append(i)
        return order, back_edges

    def best_paths(
        self,
        start: int,
        ends: set[int],
        score: Callable[[Instruction], Score],
        is_counted: Callable[[Instruction], bool] = lambda x: False,
        most: int = 0,
    ) -> dict[int, Code]:
        """The path with the highest score, NOPs left out, by the number of counted instructions in
        it, `most` at the most."""
        best: dict[int, dict[int, tuple[Score, int | None]]] = {}
        for i in self.order:
            x = self.code[i]
            own, counted = score(x), is_counted(x)
            found = {0: ((0,) * len(own), None)} if i in ends else {}
            for j in self.successors[i]:
                if (i, j) not in self.back_edges:
                    for count, (total, _) in best.get(j, {}).items():
                        if count not in found or total > found[count][0]:
                            found[count] = total, j
            best[i] = {
                count + counted: (tuple(map(add, own, total)), j)
                for count, (total, j) in found.items()
                if count + counted <= most
            }

        def path(i: int | None, count: int) -> Iterator[Instruction]:
            while i is not None:
                x = self.code[i]
                if is_issued(x):
                    yield x
                i, count = best[i][count][1], count - is_counted(x)

        return {count: list(path(start, count)) for count in best[start]}

    @property
    def exits(self) -> set[int]:
        return {i for i, x in enumerate(self.code) if x.name == "EXIT"}

    def vector_path(self) -> Code:
        """From the entry to the exit."""
        return self.best_paths(0, self.exits, vector_score).get(0, [])

    def vector_loop(self) -> tuple[Code, Code]:
        """Once round the loop with the most wide accesses, and what is before and after it."""
        loops = {
            edge: self.best_paths(edge[1], {edge[0]}, vector_score).get(0, [])
            for edge in self.back_edges
        }
        if not loops:
            return [], []
        most = max(loops, key=lambda edge: (sum(map(is_wide, loops[edge])), -len(loops[edge])))
        latch, header = most
        before = self.best_paths(0, {header}, vector_score).get(0, [])[:-1]
        after = self.best_paths(latch, self.exits, lambda x: (-is_issued(x),)).get(0, [])[1:]
        return loops[most], before + after


def vector_score(instruction: Instruction) -> Score:
    """Prefers many wide accesses, then few narrow ones, then few calls, which belong to slow paths,
    then few instructions."""
    return (
        is_wide(instruction),
        -(is_global_access(instruction) and not is_wide(instruction)),
        -instruction.is_call,
        -is_issued(instruction),
    )


def is_issued(instruction: Instruction) -> bool:
    return instruction.name != "NOP"


def narrow_accesses(path: Code) -> Code:
    """Without accesses predicated on the opposite of a wide access: they are the other side of a
    branch that was turned into predicates."""
    sides = Counter((x.name, x.predicate) for x in path if is_wide(x) and x.predicate)
    made = []
    for instruction in path:
        if is_wide(instruction) or not is_global_access(instruction):
            continue
        side = instruction.name, opposite(instruction.predicate)
        if instruction.predicate and sides[side] > 0:
            sides[side] -= 1
        else:
            made.append(instruction)
    return made


def opposite(predicate: str) -> str:
    return predicate.replace("!", "") if "!" in predicate else predicate.replace("@", "@!")
