"""The operators on DTensors, under DDP, FSDP and tensor parallelism, over gloo."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("torch.distributed.tensor")

# Uses the loopback interface alone, and resolves no name.
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONPATH": os.pathsep.join(sys.path),
}


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks(count: int, tmp_path: Path) -> None:
    """All checks of this folder. torchrun would import torch once more."""
    rendezvous = {"STORE": str(tmp_path / "store"), "WORLD_SIZE": str(count)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.pytorch.distributed"],
            env=ENVIRONMENT | rendezvous | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        for rank in range(count)
    ]
    try:
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), "\n".join(outputs)
    assert outputs[0].endswith(" checks passed\n")


@pytest.mark.slow
def test_example() -> None:
    command = "torch.distributed.run --standalone --local-addr=127.0.0.1 --nproc-per-node=2"
    arguments = "--epochs=2 --tensor-parallel=2 --soi --device=cpu"
    result = subprocess.run(
        [sys.executable, "-m", *command.split(), "examples/transformer.py", *arguments.split()],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    first, second = map(float, re.findall(r"^epoch \d: loss (.*)$", result.stdout, re.MULTILINE))
    assert second < first < 3


def test_import_leaves_dtensor_alone() -> None:
    """If its sharding rules cannot be registered, DTensor still imports, with a warning."""
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
