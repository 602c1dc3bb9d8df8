"""An argument of a wrong type is a TypeError that names the argument, without C++ in it."""

import inspect
import re
from collections.abc import Callable

import pytest
import torch

from gelu_kernels import functional

FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(functional, inspect.isfunction)
    if name != "save_quantized"  # takes pairs of tensors
}
x = torch.randn(4, 32)
ARGUMENTS = {
    "input": x,
    "grad": x,
    "up": x,
    "bias": x[0],
    "weight": x,
    "loc": 0.0,
    "scale": 1.0,
    "gate": "normal",
}
OF_DEQUANTIZE = {"data": x.to(torch.float8_e4m3fn), "scale": torch.ones(4, 1)}
# The operators' names of arguments. A function that has it for another name takes no Tensor.
NAMES = {"input": "x", "grad": "dy"}
CASES = [
    (function, name)
    for function, call in FUNCTIONS.items()
    for name, parameter in inspect.signature(call).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
    and name not in ("training", "dither")  # any truth value
]


class Wrong:
    pass


def arguments_of(function: str) -> dict[str, object]:
    """Those that have no default."""
    values = OF_DEQUANTIZE if function == "dequantize" else ARGUMENTS
    parameters = inspect.signature(FUNCTIONS[function]).parameters.values()
    return {
        p.name: values[p.name]
        for p in parameters
        if p.default is p.empty and p.kind != p.VAR_KEYWORD
    }


@pytest.mark.parametrize("function, name", CASES)
@pytest.mark.parametrize("value", [Wrong(), [1, 2], 1j], ids=lambda v: type(v).__name__)
def test_wrong_type(function: str, name: str, value: object) -> None:
    with pytest.raises(TypeError) as error:
        FUNCTIONS[function](**arguments_of(function) | {name: value})
    message = str(error.value)
    assert re.search(rf"\b({name}|{NAMES.get(name, name)})\b", message)
    assert "\n" not in message
    assert not re.search(r"(?<!gelu_kernels)::|Supports|typing|Declaration|combination", message)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_number_of_arguments(function: str) -> None:
    """Python's own words, with the names of the function as it was called."""
    call: Callable = FUNCTIONS[function]
    with pytest.raises(TypeError, match=rf"{function}\(\) missing .* required"):
        call()
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'p_'"):
        call(**arguments_of(function), p_=1)


@pytest.mark.parametrize("p", [0.25, 1, True, 0])
@pytest.mark.parametrize("function", ["gate_dropout", "glu_dropout"])
def test_p_by_position(function: str, p: float) -> None:
    """As ``torch.nn.functional.dropout`` takes it."""
    kept = FUNCTIONS[function](torch.ones(1000), p) != 0
    assert abs(float(kept.double().mean()) - (1 - p)) <= 4 * (p * (1 - p) / len(kept)) ** 0.5


@pytest.mark.parametrize("function", ["gate_dropout", "glu_dropout"])
def test_p_twice(function: str) -> None:
    with pytest.raises(TypeError, match=rf"{function}\(\) got multiple values for argument 'p'"):
        FUNCTIONS[function](x, 0.25, p=0.3)
