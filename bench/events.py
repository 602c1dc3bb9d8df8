"""Times of work on a GPU, by CUDA's events; what is compared is measured in turns.

A change of the clock then meets all sides, and most turns pass without an interruption.
"""

from collections.abc import Callable
from statistics import quantiles

import torch

Call = Callable[[], object]

TURNS = 21
MICROSECONDS = 2000  # about, for one side in one turn
GRAPHED = 20  # launches in a captured graph


def run(calls: list[Call], launches: int) -> None:
    """The results are kept until the same call comes again, so that they rotate as well."""
    kept: list[object] = [None] * len(calls)
    for i in range(launches):
        kept[i % len(calls)] = calls[i % len(calls)]()


def timed(calls: list[Call], launches: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run(calls, launches)
    end.record()
    return begin, end


def microseconds(sides: dict[str, list[Call]], launches_in_call: int = 1) -> dict[str, list[float]]:
    """The quartiles of a launch's time. The calls of a side differ in their inputs alone."""
    counts = {}
    for side, calls in sides.items():
        run(calls, len(calls) + 2)
        begin, end = timed(calls, 2 * len(calls))
        torch.cuda.synchronize()
        one = 1000 * begin.elapsed_time(end) / (2 * len(calls))
        counts[side] = max(len(calls), min(200, round(MICROSECONDS / max(one, 1e-3))))
    events = {side: [] for side in sides}
    for _ in range(TURNS):
        for side, calls in sides.items():
            events[side].append(timed(calls, counts[side]))
    torch.cuda.synchronize()
    quartiles = {}
    for side, turns in events.items():
        launches = counts[side] * launches_in_call
        times = [1000 * begin.elapsed_time(end) / launches for begin, end in turns]
        quartiles[side] = quantiles(times, n=4)
    return quartiles


def as_graph(calls: list[Call]) -> list[Call]:
    """The same work without the CPU's part in it: one graph of many launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(calls, 2)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(calls, GRAPHED)
    return [graph.replay]
