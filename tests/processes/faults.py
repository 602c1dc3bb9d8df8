"""Runs what may hang or kill a process in one of its own."""

import os
import subprocess
import sys
from textwrap import dedent

# Compares every public operator with the reference, forward and backward. A large call has 40,000
# elements for several threads; a small call runs on one.
CHECKS = """
import os, resource, signal, sys, threading, time
import torch
from tests.calls import CALLS, PUBLIC_CALLS, SEED, Sample
from torch import Tensor

from gelu_kernels import functional, reference

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
LARGE, SMALL = (500, 80), (6, 5)


def check(sample: Sample, expected: list[Tensor]) -> None:
    \"\"\"Draws from a generator of its own.\"\"\"
    random = sample.call.is_random
    own = {"generator": torch.Generator().manual_seed(SEED)} if random else {}
    leaves = sample.leaves()
    y = sample.call.function(sample.gate)(*leaves, **own)
    ours = [y.detach(), *torch.autograd.grad(y.sum(), leaves)]
    torch.testing.assert_close(ours, expected, **CLOSE)


def prepared(shape: tuple[int, ...] = LARGE) -> list[tuple[Sample, list[Tensor]]]:
    \"\"\"By the reference alone.\"\"\"
    found = []
    for call in PUBLIC_CALLS:
        sample = call.sample(shape)
        leaves = sample.leaves()
        (y,) = sample.expected(*leaves)
        found.append((sample, [y.detach(), *torch.autograd.grad(y.sum(), leaves)]))
    return found


def check_all(cases: list[tuple[Sample, list[Tensor]]]) -> None:
    for case in cases:
        check(*case)
"""


def python(script: str, **environment: str) -> str:
    """What a process prints that ends by itself, and not by a signal."""
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def run(script: str) -> str:
    """With the checks above, on four threads."""
    start = f"{CHECKS}\ntorch.set_num_threads(4)\n"
    # Else large tensors come from memory that others have freed.
    return python(start + dedent(script), MALLOC_MMAP_THRESHOLD_="262144")
