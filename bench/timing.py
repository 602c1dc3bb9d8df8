"""Times of calls, as quartiles over turns: the sides that are compared take many short turns.

A change of the machine's speed then affects all sides, and most turns are not interrupted.
"""

from collections.abc import Callable
from statistics import quantiles
from time import perf_counter

import torch
from torch.utils.benchmark import Timer

from bench.operators import Call

TURN = 2e-3  # seconds, approximately, of one side's turn
MOST_TURNS, LEAST_TURNS = 15, 3
SECONDS = 0.06  # approximately, of all turns of a side, unless they are too few
GRAPHED = 20  # launches in a captured graph

# Runs calls in rotation, `count` in all; returns a function that waits and returns the seconds.
Clock = Callable[[list[Call], int], Callable[[], float]]


def run(calls: list[Call], count: int) -> None:
    """The results are kept until the same call comes again, so that they rotate as well."""
    kept: list[object] = [None] * len(calls)
    for i in range(count):
        kept[i % len(calls)] = calls[i % len(calls)]()


def cpu_clock(calls: list[Call], count: int) -> Callable[[], float]:
    (call,) = calls
    seconds = (
        Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
        .timeit(count)
        .mean
    )
    return lambda: seconds * count


def cuda_clock(calls: list[Call], count: int) -> Callable[[], float]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run(calls, count)
    end.record()

    def seconds() -> float:
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    return seconds


def host_clock(calls: list[Call], count: int) -> Callable[[], float]:
    """Of the host alone: a turn has fewer launches than a GPU's queue takes."""
    torch.cuda.synchronize()
    start = perf_counter()
    run(calls, count)
    seconds = perf_counter() - start
    return lambda: seconds


def quartiles(
    sides: dict[str, list[Call]],
    clock: Clock,
    launches_in_call: int = 1,
    seconds: float = SECONDS,
) -> dict[str, list[float]]:
    """Microseconds of a launch. The calls of a side differ only in their inputs."""
    counts, turns = {}, MOST_TURNS
    for side, calls in sides.items():
        once = clock(calls, len(calls))() / len(calls)
        if once < TURN:  # the first may have been slow
            once = clock(calls, 2 * len(calls))() / (2 * len(calls))
        counts[side] = max(len(calls), min(2000, round(TURN / max(once, 1e-7))))
        turns = min(turns, max(LEAST_TURNS, round(seconds / (once * counts[side]))))
    clocks: dict[str, list[Callable[[], float]]] = {side: [] for side in sides}
    for _ in range(turns):
        for side, calls in sides.items():
            clocks[side].append(clock(calls, counts[side]))
    found = {}
    for side, turns_of_side in clocks.items():
        launches = counts[side] * launches_in_call
        found[side] = quantiles((1e6 * turn() / launches for turn in turns_of_side), n=4)
    return found


def as_graph(calls: list[Call]) -> list[Call]:
    """The same work without the host's part: one CUDA graph of many launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(calls, 2)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(calls, GRAPHED)
    return [graph.replay]
