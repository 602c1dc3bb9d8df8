"""``python -m bench``: medians, ours beside PyTorch's, as one table.

The two are measured in turns, many short ones, so that a change of the machine's speed meets both
and most turns pass without an interruption.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from statistics import median

import torch
from torch.utils.benchmark import Timer

from bench import soi
from bench.cases import Case, overhead, throughput

TURNS = 101
SECONDS = 0.002  # about, for one side in one turn


def seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each call, over turns."""
    timers = {side: Timer("call()", globals={"call": call}) for side, call in calls.items()}
    runs = {side: max(1, round(SECONDS / timer.timeit(20).mean)) for side, timer in timers.items()}
    times: dict[str, list[float]] = {side: [] for side in timers}
    for _ in range(TURNS):
        for side, timer in timers.items():
            times[side].append(timer.timeit(runs[side]).mean)
    return {side: median(t) for side, t in times.items()}


def table(title: str, unit: str, cases: Iterable[Case]) -> None:
    print(f"{title:42} {'ours':>8} {'torch':>8} {'torch/ours':>11}")
    for case in cases:
        time = seconds(case.calls)
        scale = {"ns/element": 1e9, "us": 1e6}[unit] / case.elements
        ours, theirs = time["ours"] * scale, time["torch"] * scale
        print(f"{case.title:42} {ours:8.3f} {theirs:8.3f} {theirs / ours:11.2f}", flush=True)
    print()


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, one thread\n")
    with torch.backends.mkldnn.flags(enabled=False):
        table("16 floats, us", "us", overhead())
    table("2^18 elements, ns/element", "ns/element", chain(throughput(), soi.throughput()))


if __name__ == "__main__":
    main()
