"""The memory of a call: its peak, the bytes that forward keeps for backward, and its source."""

import ctypes
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bench.operators import Call
from bench.sides import Side
from bench.workloads import Inputs

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
FRESH = 4 * 2**20


def fix_the_source_of_memory() -> None:
    """On a CPU, always allocates results of 4 MiB or more afresh, and reuses memory for smaller
    ones. By default, whether glibc's memory page-faults depends on what was freed before."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, FRESH)
        mallopt(M_TRIM_THRESHOLD, 64 * FRESH)


def peak_bytes(call: Call, device: str) -> int:
    """The most that is allocated at a time in a call, its results included."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        result = call()
    allocated = peak = 0
    events = found.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            allocated += event.nbytes()
            peak = max(peak, allocated)
    del result
    return peak


def saved_bytes(side: Side, inputs: Inputs, parameters: Iterable[Tensor] = ()) -> int:
    """The bytes that autograd saves, each storage once, without the parameters."""
    storages = {}

    def pack(t: Tensor) -> Tensor:
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = side.forward(*inputs.leaves())
    del y
    for parameter in parameters:
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(storages.values())
