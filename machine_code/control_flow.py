"""The ways through the instructions of a kernel."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from operator import add

from machine_code.sass import Instruction

Code = list[Instruction]
Score = tuple[int, ...]


def is_global_access(instruction: Instruction) -> bool:
    return instruction.name in ("LDG", "STG", "LD", "ST", "ATOMG", "RED")


def is_wide(instruction: Instruction) -> bool:
    """Of 16 bytes, in global memory."""
    return instruction.name in ("LDG", "STG") and ".128" in instruction.opcode


class ControlFlow:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.successors = self._successors()
        self.order, self.back_edges = self._depth_first()

    def _successors(self) -> list[list[int]]:
        joins = defaultdict(set)  # where the threads that wait at a barrier go on
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
        """What can be reached, each after all that it leads to but by the edges back in a loop."""
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

    def _best_path(self, start: int, ends: set[int]) -> Code:
        """The path with the best score, NOPs left out."""
        best: dict[int, tuple[Score, int | None]] = {}
        for i in self.order:
            onward = [
                (best[j][0], j)
                for j in self.successors[i]
                if j in best and (i, j) not in self.back_edges
            ]
            if i in ends:
                onward.append(((0, 0, 0, 0), None))
            if onward:
                rest, j = max(onward, key=lambda option: option[0])
                best[i] = tuple(map(add, score(self.code[i]), rest)), j
        path, i = [], start if start in best else None
        while i is not None:
            path.append(self.code[i])
            i = best[i][1]
        return [instruction for instruction in path if is_issued(instruction)]

    def shortest(
        self, start: int, ends: set[int], is_counted: Callable[[Instruction], bool], most: int
    ) -> dict[int, Code]:
        """By how many instructions that are counted a path has: of the paths with the most wide
        loads the shortest."""
        best: dict[int, dict[int, tuple[int, int, int | None]]] = {}
        for i in self.order:
            found = {0: (0, 0, None)} if i in ends else {}
            for j in self.successors[i]:
                if (i, j) not in self.back_edges:
                    for count, (loads, length, _) in best.get(j, {}).items():
                        option = loads, length, j
                        if count not in found or option[:2] > found[count][:2]:
                            found[count] = option
            x = self.code[i]
            step = is_wide(x) and x.name == "LDG", -is_issued(x)
            best[i] = {
                count + is_counted(x): (loads + step[0], length + step[1], j)
                for count, (loads, length, j) in found.items()
                if count + is_counted(x) <= most
            }
        return {count: self._path(best, start, count, is_counted) for count in best[start]}

    def _path(self, best: dict, i: int | None, count: int, is_counted: Callable) -> Code:
        path = []
        while i is not None:
            path.append(self.code[i])
            after = best[i][count][2]
            count -= is_counted(self.code[i])
            i = after
        return [instruction for instruction in path if is_issued(instruction)]

    def vector_path(self) -> Code:
        """From the entry to the exit."""
        return self._best_path(0, {i for i, x in enumerate(self.code) if x.name == "EXIT"})

    def loops(self) -> Iterator[Code]:
        for latch, header in self.back_edges:
            yield self._best_path(header, {latch})

    def vector_loop(self) -> Code:
        """Once round the loop with the most wide accesses."""
        return max(self.loops(), key=lambda loop: (sum(map(is_wide, loop)), -len(loop)), default=[])


def score(instruction: Instruction) -> Score:
    """What a path is chosen by: as many wide accesses as possible; then, few narrow ones; then, few
    calls, which are of slow paths; then, few instructions."""
    return (
        is_wide(instruction),
        -(is_global_access(instruction) and not is_wide(instruction)),
        -instruction.is_call,
        -is_issued(instruction),
    )


def is_issued(instruction: Instruction) -> bool:
    return instruction.name != "NOP"


def narrow_accesses(path: Code) -> Code:
    """The accesses that are made on the path: not what is predicated on the opposite of a wide
    access, the other side of a branch that was turned into predicates."""
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
