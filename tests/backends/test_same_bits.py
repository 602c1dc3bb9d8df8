"""The other backends give the bits of the CPU's: every core operator, over all inputs of 16 bits
and special values. The CPU's own are right by all the other tests.

Triton takes 0.2 s to compile a kernel, once for all tests, and the machine that executes it next to
nothing. `make test` has CUDA's operators for the first gate, and for all gates in 16 bits, and few
of Triton's; the rest is slow.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor

from tests import bits
from tests.backends.same_bits import (
    EACH_FUNCTION,
    NUMBERS,
    TRITON_PTX,
    check,
    each_family,
    few_numbers,
    fewer_numbers,
    is_first,
)
from tests.calls import DTYPES, Call

Case = tuple[Call, str, torch.dtype]


def check_numbers(
    backend: str, cases: list[Case], inputs: Callable[[Call, torch.dtype], list[Tensor]]
) -> None:
    """With the same inputs for all gates."""
    made = lru_cache(len(DTYPES))(inputs)

    def on(device: str, call: Call, dtype: torch.dtype) -> list[Tensor]:
        return [t.to(device) for t in made(call, dtype)]

    check(
        backend,
        ((call, gate, partial(on, call=call, dtype=dtype), dtype) for call, gate, dtype in cases),
    )


@each_family(NUMBERS, few_numbers, fewer_numbers)
def test_any_numbers(backend: str, cases: list[Case]) -> None:
    """In 16 bits, each there is."""
    check_numbers(backend, cases, bits.of_any_numbers)


@each_family(NUMBERS, few_numbers, fewer_numbers)
def test_special_values(backend: str, cases: list[Case]) -> None:
    check_numbers(backend, cases, of_special_values)


@each_family(
    EACH_FUNCTION,
    lambda call, gate, dtype: is_first(call, gate) and dtype == torch.bfloat16,
    backends=["triton_portable"] * len(TRITON_PTX),
)
def test_triton_without_instructions_of_nvidia(backend: str, cases: list[Case]) -> None:
    """What the kernels do instead on other GPUs."""
    check_numbers(backend, cases, bits.of_any_numbers)


def special_values(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    magnitudes = [0, smallest, 3 * smallest, info.smallest_normal, 1, 5, 11, 40, info.max, math.inf]
    x = torch.tensor(magnitudes, dtype=torch.float64)
    return torch.cat([x, -x, torch.tensor([math.nan, -math.nan])]).to(dtype)


def of_special_values(call: Call, dtype: torch.dtype) -> list[Tensor]:
    """Each with each; in as many columns as any numbers are, which Triton's kernels are for."""
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
