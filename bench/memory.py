"""The memory of a call: its peak, and what a forward pass keeps for backward."""

import os

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bench.sides import Call, Side
from bench.workloads import Inputs

# The profiler reports its start and end on stderr, through the progress bar.
os.environ.setdefault("KINETO_LOG_LEVEL", "5")


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


def saved_bytes(side: Side, inputs: Inputs) -> int:
    """Those that autograd keeps: each piece of memory once."""
    storages = {}

    def pack(t: Tensor) -> Tensor:
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = side.forward(*inputs.leaves())
    del y
    return sum(storages.values())
