"""The other backends give the bits of the CPU's: every core operator, over all inputs of 16 bits
and special values. The CPU's own are right by all the other tests.

Triton takes 0.2 s to compile a kernel, once for all tests, and the machine that executes it next to
nothing. For `make test` are CUDA's operators of the first gate, and of all gates in 16 bits, and
few of Triton's beside each in bfloat16. The others are for `make test-all`.
"""

import math

import pytest
import torch
from torch import Tensor

from tests import bits
from tests.backends.same_bits import (
    NUMBERS,
    check,
    few_numbers,
    fewer_numbers,
    is_first,
    needs_triton_ptx,
    on_backends,
)
from tests.calls import Call


@pytest.mark.parametrize(
    "backend, call, gate, dtype",
    on_backends(NUMBERS, few_numbers, fewer_numbers),
    ids=str,
)
def test_any_numbers(backend: str, call: Call, gate: str, dtype: torch.dtype) -> None:
    """In 16 bits, each there is."""

    def build(device: str) -> list[Tensor]:
        return [t.to(device) for t in bits.of_any_numbers(call, dtype)]

    check(backend, call, build, gate)


@pytest.mark.parametrize(
    "call, gate, dtype",
    [
        pytest.param(*case, marks=() if is_quick else pytest.mark.slow)
        for case in NUMBERS
        for is_quick in [is_first(*case[:2]) and case[2] == torch.bfloat16]
    ],
    ids=str,
)
def test_triton_without_instructions_of_nvidia(call: Call, gate: str, dtype: torch.dtype) -> None:
    """What the kernels have in their place for other GPUs."""
    needs_triton_ptx()

    def build(device: str) -> list[Tensor]:
        return [t.to(device) for t in bits.of_any_numbers(call, dtype)]

    check("triton_portable", call, build, gate)


def special_values(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    magnitudes = [0, smallest, 3 * smallest, info.smallest_normal, 1, 5, 11, 40, info.max, math.inf]
    x = torch.tensor(magnitudes, dtype=torch.float64)
    return torch.cat([x, -x, torch.tensor([math.nan, -math.nan])]).to(dtype)


def of_special_values(call: Call, dtype: torch.dtype) -> list[Tensor]:
    """Each beside each; in as many columns as any numbers are, which Triton's kernels are for."""
    values = special_values(dtype)
    n = len(values)
    columns = bits.any_numbers(dtype).size(-1)
    grids = iter(torch.meshgrid(values, values, values, indexing="ij"))

    def make(*shape: int) -> Tensor:
        if len(shape) == 1:
            return values.repeat(columns)[: shape[0]].clone()
        t = next(grids).reshape(n, n * n)
        t = torch.cat([t, t[:, : columns - n * n]], 1)
        return torch.cat([t, t.flip(1)], 1) if shape[-1] > columns else t

    return call.inputs((n, columns), make)


@pytest.mark.parametrize(
    "backend, call, gate, dtype",
    on_backends(NUMBERS, few_numbers, fewer_numbers),
    ids=str,
)
def test_special_values(backend: str, call: Call, gate: str, dtype: torch.dtype) -> None:
    def build(device: str) -> list[Tensor]:
        return [t.to(device) for t in of_special_values(call, dtype)]

    check(backend, call, build, gate)
