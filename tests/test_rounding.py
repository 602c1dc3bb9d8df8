"""float16 and bfloat16: value and derivative are the exact ones, correctly rounded, for all inputs.

In each instruction set of the CPU, which is chosen once in a process, and on each other device.
"""

import os
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import oracle
import pytest
import torch
from conftest import DEVICES, kernels_for
from oracle import DERIVATIVE, GATES, VALUE
from torch import Tensor

import gelu_kernels
from gelu_kernels import _C

DTYPES = (torch.float16, torch.bfloat16)
Results = dict[tuple[str, int, torch.dtype], Tensor]

exact_results = cache(oracle.correctly_rounded_results)


def all_results(device: str) -> Results:
    return {
        (gate, order, dtype): oracle.evaluate(
            gate, order, oracle.every_16_bit_input(dtype).to(device)
        ).cpu()
        for gate, order, dtype in product(GATES, (VALUE, DERIVATIVE), DTYPES)
    }


def capabilities() -> list[str]:
    """The instruction sets that were built, and that this processor has."""
    built = _C.build_info()["cpu_capabilities"].split()  # best first
    return built[built.index(_C.build_info()["cpu_capability"]) :]


def run_python(capability: str, *arguments: str) -> None:
    """A process that uses this instruction set."""
    environment = os.environ | {
        "GELU_KERNELS_CPU_CAPABILITY": capability,
        "PYTHONPATH": str(Path(gelu_kernels.__file__).parent.parent),
    }
    result = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module", params=[*(f"cpu {name}" for name in capabilities()), *DEVICES[1:]])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    device, _, capability = request.param.partition(" ")
    if not capability:
        with kernels_for(device) as device:
            return all_results(device)
    path = tmp_path_factory.mktemp("results") / f"{capability}.pt"
    run_python(capability, __file__, str(path))
    saved = torch.load(path)
    assert saved.pop("capability") == capability
    return saved


def misrounded(results: Results, gate: str, order: int, dtype: torch.dtype) -> Tensor:
    """The finite inputs whose result is not the correctly rounded one."""
    x = oracle.every_16_bit_input(dtype)
    return x[x.isfinite() & (results[gate, order, dtype] != exact_results(gate, order, dtype))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", [VALUE, DERIVATIVE], ids=["value", "derivative"])
def test_correctly_rounded(results: Results, gate: str, order: int, dtype: torch.dtype) -> None:
    wrong = misrounded(results, gate, order, dtype)
    assert wrong.numel() == 0, f"{wrong.numel()} inputs, such as {wrong[:5].tolist()}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_signs_and_nan(results: Results, gate: str, dtype: torch.dtype) -> None:
    """A value has its input's sign, a zero as well; NaN gives NaN, and nothing else does."""
    x = oracle.every_16_bit_input(dtype)
    y, dx = (results[gate, order, dtype] for order in (VALUE, DERIVATIVE))
    assert torch.equal(y.isnan(), x.isnan())
    assert torch.equal(dx.isnan(), x.isnan())
    assert torch.equal(y.signbit()[~x.isnan()], x.signbit()[~x.isnan()])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh", "sigmoid"])
def test_public_operator_is_the_core_operator(
    approximate: str, dtype: torch.dtype, device: str
) -> None:
    """`fused_gelu` and its gradient, by PyTorch's own route, are correctly rounded too."""
    gate = dict(zip(["none", "tanh", "sigmoid"], GATES, strict=True))[approximate]
    x = oracle.every_16_bit_input(dtype).to(device).requires_grad_()
    y = torch.ops.gelu_kernels.fused_gelu(x, approximate=approximate)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    finite = x.isfinite().cpu()
    assert torch.equal(y.cpu()[finite], exact_results(gate, VALUE, dtype)[finite])
    assert torch.equal(dx.cpu()[finite], exact_results(gate, DERIVATIVE, dtype)[finite])


def main(path: Path) -> None:
    torch.save(all_results("cpu") | {"capability": _C.build_info()["cpu_capability"]}, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
