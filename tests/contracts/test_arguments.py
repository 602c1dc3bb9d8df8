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
from torch.fx.experimental.proxy_tensor import make_fx

from gelu_kernels import functional, nn
from tests.cases import each

FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(functional, inspect.isfunction)
    if name != "save_quantized"  # takes pairs of tensors
}
x = torch.linspace(-2, 2, 64).view(8, 8)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def codes(function: Callable, *matrices: Tensor, **number: object) -> Tensor:
    """Of the last matrix and the same as `up`, in blocks of 32."""
    wide = [x.repeat(1, 4) for x in (*matrices, x)]
    result = function(*wide, gate="normal", **number)
    return (result[0] if len(matrices) > 1 else result).data.view(torch.uint8)


OF_A_NUMBER: dict[str, Callable[[Tensor, object], Tensor]] = {
    "cdf_gate loc": lambda x, n: functional.cdf_gate(x, n, 1.0),
    "cdf_gate scale": lambda x, n: functional.cdf_gate(x, 0.0, n),
    "soi_map loc": lambda x, n: functional.soi_map(x, loc=n, generator=generator()),
    "soi_map scale": lambda x, n: functional.soi_map(x, scale=n, generator=generator()),
    "bias_gelu_dropout p": lambda x, n: functional.bias_gelu_dropout(
        x, x[0], n, generator=generator()
    ),
    "gate_dropout p": lambda x, n: functional.gate_dropout(x, p=n, generator=generator()),
    "glu_dropout p": lambda x, n: functional.glu_dropout(x, x, n, generator=generator()),
    "glu limit": lambda x, n: functional.glu(x, x, gate="normal", limit=n),
    "glu up_offset": lambda x, n: functional.glu(x, x, gate="normal", up_offset=n),
    "quantized_glu limit": lambda x, n: codes(functional.quantized_glu, x, limit=n),
    "quantized_glu up_offset": lambda x, n: codes(functional.quantized_glu, x, up_offset=n),
    "quantized_glu_backward limit": lambda x, n: codes(
        functional.quantized_glu_backward, x, x, limit=n
    ),
    "quantized_glu_backward up_offset": lambda x, n: codes(
        functional.quantized_glu_backward, x, x, up_offset=n
    ),
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
    name, argument = function.split()
    with pytest.raises(TypeError, match=rf"^{name}\(\): argument '{argument}' must be"):
        OF_A_NUMBER[function](x, value)


def test_a_negative_scale_of_another_type_is_refused() -> None:
    for scale in (np.float32(-1), Fraction(-1), Decimal("nan")):
        with pytest.raises(ValueError, match=r"cdf_gate\(\): scale must be at least 0, got"):
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
    kind = type(value).__name__
    assert re.match(rf"{function}\(\): argument '{name}' must be [^,]+, not {kind}", message)
    assert "\n" not in message
    assert not re.search("::|Supports|typing|Declaration|combination|ScalarType", message)


F, ONES_OF_16_BITS = functional, torch.ones(8, dtype=torch.bfloat16)
MESSAGES: dict[str, Callable[[], object]] = {
    "bias_gelu(): argument 'bias' must be Tensor, not NoneType; without a bias, use gelu": (
        lambda: F.bias_gelu(x, None)
    ),
    "bias_soi_map(): argument 'bias' must be Tensor, not NoneType; without a bias, use soi_map": (
        lambda: F.bias_soi_map(x, None)
    ),
    "gate(): argument 'bias' must be Tensor or None, not str; the gate is a keyword: gate='silu'": (
        lambda: F.gate(x, "silu")
    ),
    "gelu(): argument 'input' must be Tensor, not ndarray; torch.as_tensor makes one of it": (
        lambda: F.gelu(np.ones(3))
    ),
    "gelu(): argument 'approximate' must be str, not NoneType; one of 'none' 'tanh' 'sigmoid'": (
        lambda: F.gelu(x, approximate=None)
    ),
    "swiglu(): argument 'up' must be Tensor or None, not float": lambda: F.swiglu(x, 3.0),
    "swiglu(): argument 'up' must be Tensor or None, not str": lambda: F.swiglu(x, "silu"),
    "swiglu(): input must be float64, float32, float16 or bfloat16, got torch.int64": (
        lambda: nn.SwiGLU()(x.long())
    ),
    "swiglu(): the last dimension of input must be even, got length 7": (
        lambda: F.swiglu(x[:, :7])
    ),
    "quantized_geglu(): input must be float32 or bfloat16, got torch.float16": (
        lambda: F.quantized_geglu(x.half())
    ),
    "quantized_geglu(): approximate must be one of 'none' 'tanh' 'sigmoid', got 'erf'": (
        lambda: F.quantized_geglu(x, approximate="erf")
    ),
    "quantized_gate_backward(): grad must have the dtype of input, torch.bfloat16, got"
    " torch.float32": lambda: F.quantized_gate_backward(x, x.bfloat16()),
    "quantized_gate(): offsets must ascend from 0 to at most the number of rows of input, 8, got 3"
    " after 4": lambda: F.quantized_gate(x.repeat(1, 4), offsets=torch.tensor([4, 3]).int()),
    "quantized_glu_backward(): weight must have a number for each row of input, [8], got [7]": (
        lambda: F.quantized_glu_backward(x, x, x, gate="silu", weight=x[0, :7])
    ),
    "quantized_glu(): limit must be positive, got -1": (
        lambda: F.quantized_glu(x, x, gate="silu", limit=-1)
    ),
    "bias_gelu(): bias must have the dtype of input, torch.float32, got torch.bfloat16; cast it, or"
    " call under torch.autocast, which does": lambda: F.bias_gelu(x, ONES_OF_16_BITS),
    "GEGLU(): argument 'approximate' must be str, not int; one of 'none' 'tanh' 'sigmoid'": (
        lambda: nn.GEGLU(8)
    ),
    "GELU(): save must be None, '8bit' or '4bit', got '2bit'": lambda: nn.GELU(save="2bit"),
    "SiLU(): dither must be False without save, got True": lambda: nn.SiLU(dither=True),
    "silu(): dither must be False without save, got True": lambda: F.silu(x, dither=True),
    "MLP(): dropout must be from 0 to 1, got 2": lambda: nn.MLP(2, 2, dropout=2),
}


@each(message=MESSAGES)
def test_words(message: str) -> None:
    """In full: the function as it was called, the argument as it is named there, dtypes as PyTorch
    writes them, and what to write instead where that is clear."""
    with pytest.raises((TypeError, ValueError)) as error:
        MESSAGES[message]()
    assert str(error.value) == message


GATE_MODULES = {
    "CDFGate": {},
    "GLULinear": {"in_features": 2, "out_features": 2},
    "GateLinear": {"in_features": 2, "out_features": 2},
    "MLP": {"features": 2, "hidden": 2},
    "SOIMap": {},
}


@each(module=GATE_MODULES)
def test_constructors_check_the_gate(module: str) -> None:
    make, given = getattr(nn, module), GATE_MODULES[module]
    assert GATE_MODULES.keys() == {
        name for name in nn.__all__ if "gate" in inspect.signature(getattr(nn, name)).parameters
    }
    with pytest.raises(ValueError, match=rf"^{module}\(\): gate must be one of .* got 'swish'"):
        make(**given, gate="swish")
    with pytest.raises(TypeError, match=rf"^{module}\(\): argument 'gate' must be str, not int"):
        make(**given, gate=8)
    assert repr(make(**given, gate="silu")).count("gate='silu'") == 1


ALIASES = {"normal": "gelu", "normal_tanh": "gelu_tanh"}
ALIASES |= {"logistic_1702": "quick_gelu", "logistic": "silu"}


@each(function=FUNCTIONS, gate=ALIASES)
def test_names_that_models_use(function: str, gate: str) -> None:
    """They select the same gate wherever ``gate=`` is taken."""
    call = FUNCTIONS[function]
    if "gate" not in inspect.signature(call).parameters:
        return
    given = required(function) | {"gate": gate}
    if "quantized" in function:
        given |= {name: t.repeat(1, 4) for name, t in given.items() if name in ("input", "grad")}
        given |= {"up": given["input"]} if "glu" in function else {}
    if function == "glu_linear":
        given |= {"weight": x}
    torch.manual_seed(0)
    expected = call(**given)
    torch.manual_seed(0)
    torch.testing.assert_close(call(**given | {"gate": ALIASES[gate]}), expected, rtol=0, atol=0)


def test_operators_take_the_same_names() -> None:
    y = torch.ops.gelu_kernels.fused_glu(x, x, gate="silu")
    assert torch.equal(y, functional.swiglu(x, x))
    graph = make_fx(lambda x: functional.gate(x, gate="silu"))(x).graph
    (core,) = (node for node in graph.nodes if node.op == "call_function")
    assert core.args[-1] == "logistic"


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
