"""``python -m bench.block``: it measures what it says, and times nothing wrong."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench import block

SMALL = ("--features", "64", "--batch", "2", "--length", "8", "--layers", "3", "--seconds", "0.01")


def run(output: Path, *arguments: str) -> Result:
    return CliRunner().invoke(block.main, [*SMALL, *arguments, "--output", str(output)])


@pytest.mark.parametrize("mlp, hidden, of_torch", [("gelu", 256, 0), ("swiglu", 192, 1)])
def test_kept_bytes(mlp: str, hidden: int, of_torch: int, tmp_path: Path) -> None:
    """In tensors of the hidden layer: eager PyTorch keeps one more in a SwiGLU, recomputation one
    less, a checkpoint less again."""
    assert run(tmp_path, "--mlp", mlp).exit_code == 0
    (path,) = tmp_path.iterdir()
    with path.open() as file:
        kept = {row["mode"]: int(row["kept bytes"]) for row in csv.DictReader(file)}
    tensor = 4 * 3 * 2 * 8 * hidden
    assert kept["torch"] - kept["gelu_kernels"] == of_torch * tensor
    assert kept["gelu_kernels"] - kept["recompute"] == tensor
    # Numbers of one byte, and a scale for each 32 of them.
    assert kept["gelu_kernels"] - kept["mxfp8"] == tensor - tensor // 4 - tensor // 128
    assert kept["checkpoint"] < kept["recompute"]
    if mlp == "gelu":
        assert kept["gelu_kernels"] - kept["8bit"] == tensor * 3 // 4
        assert kept["gelu_kernels"] - kept["4bit"] == tensor * 7 // 8


@pytest.mark.parametrize("dtype, factor", [("float32", 1.001), ("bfloat16", 1.2)])
def test_a_wrong_mode_is_not_timed(
    dtype: str, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = block.MODES["gelu"]["recompute"]
    monkeypatch.setitem(block.MODES["gelu"], "recompute", lambda *args: factor * right(*args))
    result = run(tmp_path, "--dtype", dtype)
    assert result.exit_code == 1 and "recompute: an error of" in result.output
    assert not list(tmp_path.iterdir())
