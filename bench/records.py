"""Times the sides of a cell, next to a copy of memory, as records of a run (runs.py)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bench import timing
from bench.memory import peak_bytes
from bench.operators import Call

# Elements up to which a launch counts: there a GPU is also timed without the host's part, and the
# host without the GPU's.
LAUNCHES_COUNT = 2**24


@dataclass(frozen=True)
class Cell:
    op: str
    label: str  # of the pass
    gate: str
    dtype: str
    elements: int  # of the result
    moved: float  # the bytes that the pass must move

    @property
    def names(self) -> dict[str, object]:
        return {
            "op": self.op,
            "pass": self.label,
            "gate": self.gate,
            "dtype": self.dtype,
            "elements": self.elements,
        }


def copies(tensors: list[Tensor]) -> list[Call]:
    """Into memory that is already allocated: the bandwidth that the device reaches."""
    return [partial(torch.empty_like(t).copy_, t) for t in tensors]


def graph_times(sides: dict[str, list[Call]]) -> dict[str, float]:
    """Of a launch in a CUDA graph, where a side can be captured."""
    graphs = {}
    for name, calls in sides.items():
        try:
            graphs[name] = timing.as_graph(calls)
        except RuntimeError:  # its CPU part cannot be left out
            torch.cuda.synchronize()
    found = timing.quartiles(graphs, timing.cuda_clock, timing.GRAPHED)
    return {name: found[name][1] for name in graphs}


def host_times(sides: dict[str, list[Call]]) -> dict[str, float]:
    found = timing.quartiles(sides, timing.host_clock)
    return {name: median for name, (_, median, _) in found.items()}


def records(
    cell: Cell,
    calls: dict[str, list[Call]],
    copied: list[Tensor],
    seconds: float,
    facts: Mapping[str, dict[str, object]] = {},
) -> Iterator[dict[str, object]]:
    """One for each side. `copied` are tensors to be copied, one for each call of a side; `facts`
    are found otherwise."""
    device = copied[0].device.type
    clock = timing.cpu_clock if device == "cpu" else timing.cuda_clock
    quartiles = timing.quartiles(calls | {"copy": copies(copied)}, clock, seconds=seconds)
    graphs, hosts = {}, {}
    if device == "cuda" and cell.elements <= LAUNCHES_COUNT:
        graphs, hosts = graph_times(calls), host_times(calls)
    rate = 2 * copied[0].nbytes / quartiles["copy"][1]
    for name in calls:
        low, us, high = (round(t, 3) for t in quartiles[name])
        yield cell.names | {
            "side": name,
            "us": us,
            "low": low,
            "high": high,
            "us in a graph": round(graphs[name], 3) if name in graphs else None,
            "host us": round(hosts[name], 3) if name in hosts else None,
            "roof": round(100 * cell.moved / quartiles[name][1] / rate, 1),
            "peak bytes": peak_bytes(calls[name][0], device),
            **facts.get(name, {}),
        }
