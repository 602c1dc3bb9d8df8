"""The operators on DTensors, under DDP, FSDP and tensor parallelism: by torchrun, over gloo."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("torch.distributed.tensor")

from tests.pytorch.distributed_checks import CHECKS  # noqa: E402

CHECKING = ROOT / "tests" / "pytorch" / "distributed_checks.py"
EXAMPLE = ROOT / "examples" / "transformer.py"


def torchrun(processes: int, script: Path, *arguments: str) -> str:
    """What the script prints. Nothing but the loopback interface is used, nor any name resolved."""
    command = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={processes}", str(script), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@cache
def outcomes(processes: int) -> dict[str, str]:
    return json.loads(torchrun(processes, CHECKING).splitlines()[-1])


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("check", CHECKS)
def test_ranks_find(check, processes):
    failures = outcomes(processes).get(check, "not reached, as one before failed on some ranks")
    assert not failures, failures


@pytest.mark.slow
def test_example():
    arguments = ["--epochs=2", "--tensor-parallel=2", "--soi", "--device=cpu"]
    losses = re.findall(r"^epoch \d: loss (.*)$", torchrun(2, EXAMPLE, *arguments), re.MULTILINE)
    first, second = map(float, losses)
    assert second < first < 3


def test_import_leaves_dtensor_alone():
    """And where its rules cannot be registered, DTensor is there all the same, with a warning."""
    program = """if True:
        import importlib.util, sys, torch, gelu_kernels
        importlib.util.find_spec("torch.distributed.tensor")
        assert "torch.distributed.tensor" not in sys.modules
        sys.modules["gelu_kernels.distributed.elementwise"] = None
        from torch.distributed.tensor import DTensor
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "gelu_kernels has no rules for this torch's DTensor" in result.stderr
