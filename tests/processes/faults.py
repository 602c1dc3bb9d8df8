"""Runs scripts that may hang or crash in a new process, and checks the operators there."""

from functools import partial
from textwrap import dedent

import torch
from torch import Tensor

from tests.calls import PUBLIC_CALLS, SEED, Sample, Shape, normal
from tests.new_process import python

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
# A large call has 40,000 elements for several threads; a small call runs on one.
LARGE, SMALL = (500, 80), (6, 5)
Case = tuple[Sample, list[Tensor]]


def check(sample: Sample, expected: list[Tensor]) -> None:
    """Draws from a generator of its own."""
    device = sample.tensors[0].device
    random = sample.call.is_random
    own = {"generator": torch.Generator(device).manual_seed(SEED)} if random else {}
    leaves = sample.leaves()
    y = sample.call.function(sample.gate)(*leaves, **own)
    ours = [y.detach(), *torch.autograd.grad(y.sum(), leaves)]
    torch.testing.assert_close(ours, expected, **CLOSE)


def prepared(shape: Shape = LARGE, device: str = "cpu") -> list[Case]:
    """Every public operator with its result and gradients by the reference alone."""
    found = []
    for call in PUBLIC_CALLS:
        sample = call.sample(shape, partial(normal, device=device))
        leaves = sample.leaves()
        (y,) = sample.expected(*leaves)
        found.append((sample, [y.detach(), *torch.autograd.grad(y.sum(), leaves)]))
    return found


def check_all(cases: list[Case]) -> None:
    for case in cases:
        check(*case)


START = """
import os, resource, signal, sys, threading, time
import torch
from torch import Tensor

from gelu_kernels import functional, reference
from tests.calls import CALLS, PUBLIC_CALLS
from tests.processes.faults import CLOSE, SMALL, check, check_all, prepared

torch.set_num_threads(4)
"""


def run(script: str) -> str:
    """With the checks above, on four threads."""
    # Else large tensors come from memory that others have freed.
    return python(START + dedent(script), MALLOC_MMAP_THRESHOLD_="262144")
