"""The measurement of a plan: each side and a plain copy of memory."""

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from time import monotonic

import torch
from tqdm import tqdm

from bench import timing
from bench.check import Check, checker
from bench.memory import saved_bytes
from bench.operators import is_measured
from bench.options import Size
from bench.peers import Sides
from bench.records import Cell, records
from bench.sides import Side, sides_of
from bench.workloads import Inputs, Workload, make_inputs

# Bytes that a GPU processes before it sees the same tensor again: more than four times any L2.
ROTATED = 2**29
# Elements up to which a tensor stays in cache.
SMALL = 2**20
NO_TIME = "no time was left"
OVERHEAD = 1024  # elements, up to which a call's overhead dominates


@dataclass(frozen=True)
class Plan:
    ops: tuple[str, ...]
    passes: tuple[str, ...]
    gates: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: tuple[Size, ...]
    device: str
    backend: str
    compilers: tuple[str, ...]  # of sides.COMPILERS
    peers: dict[str, Sides]
    deadline: float = math.inf  # by monotonic()

    def __len__(self) -> int:
        return math.prod(map(len, (self.cells, self.sizes, self.passes)))

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """Of a gate, a dtype and an operator."""
        found = product(self.gates, self.dtypes, self.ops)
        return [(gate, dtype, op) for gate, dtype, op in found if is_measured(op, gate)]

    @property
    def seconds_left(self) -> float:
        return self.deadline - monotonic()


def free_memory(device: str) -> int:
    if device == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def one_dnn(workload: Workload) -> AbstractContextManager:
    """oneDNN takes 5 us for F.gelu of any size; small tensors are faster without it."""
    return torch.backends.mkldnn.flags(enabled=workload.elements > OVERHEAD)


def measure_pass(
    workload: Workload,
    label: str,
    inputs: list[Inputs],
    right: dict[str, Side],
    facts: dict[str, dict[str, object]],
    share: float,
) -> Iterator[dict]:
    """A record for each side. Takes at most half of a pass's share of the time, leaving the rest
    for its checks; in few turns if that is short."""
    calls = {name: [side.call(label, one) for one in inputs] for name, side in right.items()}
    cell = Cell(
        *(workload.op, label, workload.gate, workload.dtype, workload.elements),
        moved=workload.bytes_moved(label),
    )
    seconds = min(timing.SECONDS, share / 2 / (len(calls) + 1))
    with one_dnn(workload):
        yield from records(cell, calls, [one.dy for one in inputs], seconds, facts)


def check_sides(
    label: str, sides: dict[str, Side], check: Check
) -> tuple[dict[str, float | None], dict[str, str]]:
    """The largest error of each side that is right, and the problem of each wrong one."""
    errors, wrong = {}, {}
    for name, side in sides.items():
        try:
            errors[name] = check(label, side)
        except Exception as error:  # a peer may fail in any way
            wrong[name] = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    return errors, wrong


def measure_size(
    plan: Plan, workload: Workload, sides: dict[str, Side], share: float, progress: tqdm
) -> Iterator[dict]:
    """The share is the seconds for a pass."""
    sets = rotated(plan.device, workload)
    inputs = [make_inputs(workload, plan.device) for _ in range(sets)]
    check = checker(workload, inputs[0])
    saved: dict[str, int] = {}
    for label in plan.passes:
        name = f"{workload.op} {label} {workload.gate} {workload.dtype} {workload.elements}"
        progress.set_description(name)
        if plan.seconds_left <= 0:
            yield {"skipped": name, "because": NO_TIME}
            continue
        errors, wrong = check_sides(label, sides, check)
        for side, problem in wrong.items():
            yield {"wrong": name, "by": side, "because": problem}
        right = {key: sides[key] for key in errors}
        saved |= {key: saved_bytes(right[key], inputs[0]) for key in right.keys() - saved.keys()}
        facts = {key: {"saved bytes": saved[key], "ULP": errors[key]} for key in right}
        yield from measure_pass(workload, label, inputs, right, facts, share)
        progress.update()


def rotated(device: str, workload: Workload) -> int:
    """Sets of inputs."""
    if device == "cpu" or workload.elements <= SMALL:
        return 1
    return max(2, ROTATED // workload.bytes)


def needed_memory(plan: Plan, workload: Workload) -> int:
    """Of the inputs and results of a set, and of the float64 tensors that check them."""
    return rotated(plan.device, workload) * workload.bytes_moved("both") + 40 * workload.elements


def obstacle(plan: Plan, workload: Workload) -> str | None:
    """Why it cannot be measured."""
    if plan.seconds_left <= 0:
        return NO_TIME
    needed = needed_memory(plan, workload)
    if needed > free_memory(plan.device):
        return f"needs {needed / 2**30:.1f} GiB of memory"
    return None


def measure(plan: Plan, progress: tqdm) -> Iterator[dict]:
    """Records; one with the key "skipped" or "wrong" gives the reason why a cell has no time."""
    passes_left = len(plan)
    for gate, dtype, op in plan.cells:
        dynamic = len(plan.sizes) > 1
        sides = sides_of(op, gate, plan.backend, plan.peers, plan.compilers, dynamic)
        for size in plan.sizes:
            workload = Workload(op, gate, dtype, size.elements(dtype))
            if because := obstacle(plan, workload):
                yield {"skipped": f"{op} {gate} {dtype} {size}", "because": because}
                progress.update(len(plan.passes))
            else:
                share = plan.seconds_left / passes_left
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of PyTorch, about itself
                    yield from measure_size(plan, workload, sides, share, progress)
            passes_left -= len(plan.passes)
