"""Arguments: a number is what `float` takes, but no text; a wrong type is a TypeError that names
the argument, without C++ in it.
"""

import inspect
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from tests.cases import each

FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(functional, inspect.isfunction)
    if name != "save_quantized"  # takes pairs of tensors
}
x = torch.linspace(-2, 2, 64).view(8, 8)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


OF_A_NUMBER: dict[str, Callable[[Tensor, object], Tensor]] = {
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


@each(function=OF_A_NUMBER, number=HALVES + ONES)
def test_taken_as_a_float(function: str, number: object) -> None:
    call = OF_A_NUMBER[function]
    assert torch.equal(call(x, number), call(x, float(number)))


@each(function=OF_A_NUMBER, value=NOT_NUMBERS)
def test_what_is_no_number_is_refused(function: str, value: object) -> None:
    operator, argument = function.split()
    with pytest.raises(TypeError, match=rf"{operator}\b.*\b{argument}\b.* must be"):
        OF_A_NUMBER[function](x, value)


def test_a_negative_scale_of_another_type_is_refused() -> None:
    for scale in (np.float32(-1), Fraction(-1), Decimal("nan")):
        with pytest.raises(ValueError, match="cdf_gate: scale must be at least 0, got"):
            functional.cdf_gate(x, 0.0, scale)


# Wrong types

OPERANDS = {
    "input": x,
    "grad": x,
    "up": x,
    "bias": x[0],
    "weight": x,
    "loc": 0.0,
    "scale": 1.0,
    "gate": "normal",
}
OF_DEQUANTIZE = {"data": x.to(torch.float8_e4m3fn), "scale": torch.ones(8, 1)}
# The operators' names of arguments. A function that has it for another name takes no Tensor.
NAMES = {"input": "x", "grad": "dy"}
PARAMETERS = [
    (function, name)
    for function, call in FUNCTIONS.items()
    for name, parameter in inspect.signature(call).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
    and name not in ("training", "dither")  # any truth value
]


class Wrong:
    pass


def required(function: str) -> dict[str, object]:
    """The arguments that have no default."""
    values = OF_DEQUANTIZE if function == "dequantize" else OPERANDS
    parameters = inspect.signature(FUNCTIONS[function]).parameters.values()
    return {
        p.name: values[p.name]
        for p in parameters
        if p.default is p.empty and p.kind != p.VAR_KEYWORD
    }


@each(parameter=PARAMETERS, value=[Wrong(), [1, 2], 1j])
def test_wrong_type(parameter: tuple[str, str], value: object) -> None:
    function, name = parameter
    with pytest.raises(TypeError) as error:
        FUNCTIONS[function](**required(function) | {name: value})
    message = str(error.value)
    assert re.search(rf"\b({name}|{NAMES.get(name, name)})\b", message)
    assert "\n" not in message
    assert not re.search(r"(?<!gelu_kernels)::|Supports|typing|Declaration|combination", message)


@each(function=FUNCTIONS)
def test_wrong_number_of_arguments(function: str) -> None:
    """Python's own words, with the name of the function that was called."""
    call = FUNCTIONS[function]
    with pytest.raises(TypeError, match=rf"{function}\(\) missing .* required"):
        call()
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'p_'"):
        call(**required(function), p_=1)


@pytest.mark.parametrize("function", ["gate_dropout", "glu_dropout"])
def test_p_by_position(function: str) -> None:
    """As ``torch.nn.functional.dropout`` takes it."""
    for p in [0.25, 1, True, 0]:
        kept = FUNCTIONS[function](torch.ones(1000), p) != 0
        assert abs(float(kept.double().mean()) - (1 - p)) <= 4 * (p * (1 - p) / len(kept)) ** 0.5
    with pytest.raises(TypeError, match=rf"{function}\(\) got multiple values for argument 'p'"):
        FUNCTIONS[function](x, 0.25, p=0.3)
