"""Processes for what may hang or kill one."""

import os
import subprocess
import sys
from textwrap import dedent

# Of every public operator, forward and backward, beside the reference: threads have parts of 40,000
# elements to compute, and small calls have none.
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


def run(script: str, threads: int = 4, timeout: int = 300) -> str:
    """What it prints. It ends by itself, and not by a signal."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MALLOC_MMAP_THRESHOLD_": "262144",  # else large tensors come from what others left
    }
    start = f"{CHECKS}\ntorch.set_num_threads({threads})\n"
    result = subprocess.run(
        [sys.executable, "-c", start + dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
    return result.stdout
