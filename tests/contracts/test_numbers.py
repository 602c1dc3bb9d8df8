"""Arguments that are numbers: what `float` takes, but no text."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels import functional

Function = Callable[[Tensor, object], Tensor]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


FUNCTIONS: dict[str, Function] = {
    "cdf_gate loc": lambda x, n: functional.cdf_gate(x, n, 1.0),
    "cdf_gate scale": lambda x, n: functional.cdf_gate(x, 0.0, n),
    "soi_map loc": lambda x, n: functional.soi_map(x, loc=n, generator=generator()),
    "soi_map scale": lambda x, n: functional.soi_map(x, scale=n, generator=generator()),
    "fused_bias_gelu_dropout p": lambda x, n: functional.bias_gelu_dropout(
        x, x[0], n, generator=generator()
    ),
    "fused_gate_dropout p": lambda x, n: functional.gate_dropout(x, p=n, generator=generator()),
    "fused_glu_dropout p": lambda x, n: functional.glu_dropout(x, x, n, generator=generator()),
    "fused_glu limit": lambda x, n: functional.glu(x, x, gate="normal", limit=n),
    "fused_glu up_offset": lambda x, n: functional.glu(x, x, gate="normal", up_offset=n),
    "glu_linear limit": lambda x, n: functional.glu_linear(x, x, x, limit=n),
    "glu_linear up_offset": lambda x, n: functional.glu_linear(x, x, x, up_offset=n),
}
each_function = pytest.mark.parametrize("function", FUNCTIONS)


class Half:
    def __float__(self) -> float:
        return 0.5


class One:
    def __index__(self) -> int:
        return 1


HALVES = [np.float16(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5), Fraction(1, 2)]
HALVES += [Decimal("0.5"), Half()]
ONES = [1, True, np.int8(1), np.int64(1), np.uint32(1), np.bool_(True), Fraction(1), One()]
NOT_NUMBERS = ["0.5", b"1", np.str_("1"), [0.5], (1,), {}, np.array([0.5, 0.5]), 1j, object()]


@each_function
@pytest.mark.parametrize("number", HALVES + ONES, ids=lambda n: f"{type(n).__name__} {n!s:.4}")
def test_taken_as_a_float(function: str, number: object) -> None:
    x = torch.linspace(-2, 2, 64).view(8, 8)
    call = FUNCTIONS[function]
    assert torch.equal(call(x, number), call(x, float(number)))


@each_function
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: type(value).__name__)
def test_refused(function: str, value: object) -> None:
    operator, argument = function.split()
    with pytest.raises(TypeError, match=rf"{operator}\b.*\b{argument}\b.* must be"):
        FUNCTIONS[function](torch.zeros(8, 8), value)


def test_a_negative_scale_of_another_type_is_refused() -> None:
    for scale in (np.float32(-1), Fraction(-1), Decimal("nan")):
        with pytest.raises(ValueError, match="cdf_gate: scale must be at least 0, got"):
            functional.cdf_gate(torch.zeros(3), 0.0, scale)
