"""Checks the arguments that Python handles itself, and words the errors of C++, which checks all
others, as the caller of a function would."""

import inspect
import re
import sys
from contextlib import suppress
from typing import NoReturn, SupportsFloat, SupportsIndex

import torch

from gelu_kernels import _C

APPROXIMATE = {approximate: gate for gate, approximate, _ in _C.gates() if approximate}
# By each name that `gate=` takes.
GATES = {name: gate for gate, _, alias in _C.gates() for name in (gate, alias) if name}
SAVE = (None, "8bit", "4bit")

# The function to call without a bias.
_WITHOUT_BIAS = {
    "bias_gelu": "gelu",
    "bias_gelu_dropout": "gate_dropout",
    "bias_soi_map": "soi_map",
}
# As PyTorch's messages name them.
_TYPES = {torch.nn.Module: "torch.nn.Module", torch.dtype: "torch.dtype"}
_OURS = {"x": "input", "dy": "grad"}  # the operators' names of arguments


def check_type(function: str, name: str, value: object, expected: type) -> None:
    """Raises a TypeError in the words of PyTorch's functions."""
    if not isinstance(value, expected):
        raise _wrong_type(function, name, _TYPES.get(expected, expected.__name__), value)


def number(function: str, name: str, value: object) -> float:
    """The value as a float: whatever ``float`` takes, except text."""
    if isinstance(value, (SupportsFloat, SupportsIndex)) and not isinstance(value, (str, bytes)):
        with suppress(TypeError):  # an array of several numbers
            return float(value)
    raise _wrong_type(function, name, "a number or a tensor", value)


def gate_for(function: str, approximate: str) -> str:
    """The gate that ``approximate=`` selects."""
    return _selected(function, "approximate", approximate, APPROXIMATE)


def gate_name(function: str, gate: str) -> str:
    """The gate that ``gate=`` selects, by any of its names."""
    return _selected(function, "gate", gate, GATES)


def _selected(function: str, name: str, value: str, choices: dict[str, str]) -> str:
    check_type(function, name, value, str)
    if value not in choices:
        raise ValueError(f"{function}(): {name} must be {_one_of(choices)}, got {value!r}")
    return choices[value]


def check_save(function: str, save: str | None, dither: bool) -> None:
    if save is not None:
        check_type(function, "save", save, str)
    if save not in SAVE:
        raise ValueError(f"{function}(): save must be None, '8bit' or '4bit', got {save!r}")
    if dither and save is None:
        raise ValueError(f"{function}(): dither must be False without save, got True")


def reworded(message: str) -> str:
    """An operator's error in the words of the function that was called, if it was one."""
    function = _called()
    if not function:
        return message
    message = re.sub(r"^gelu_kernels::\w+", f"{function}()", message)
    return re.sub(r"(?<![\w'])(x|dy)(?![\w'])", lambda name: _OURS[name[0]], message)


def refuse(operator: str, name: str, expected: str, value: object) -> NoReturn:
    """Raises what C++ finds: an argument of the wrong type."""
    raise _wrong_type(_called() or operator, _OURS.get(name, name), expected, value)


def _wrong_type(function: str, name: str, expected: str, value: object) -> TypeError:
    message = f"{function}(): argument '{name}' must be {expected}, not {type(value).__name__}"
    return TypeError("; ".join([message, *_remedy(function, name, expected, value)]))


def _remedy(function: str, name: str, expected: str, value: object) -> list[str]:
    """What to write instead, where that is clear."""
    if name == "bias" and value is None and function in _WITHOUT_BIAS:
        return [f"without a bias, use {_WITHOUT_BIAS[function]}"]
    called = getattr(sys.modules[__package__], function, None)
    takes_gate = called is not None and "gate" in inspect.signature(called).parameters
    if takes_gate and isinstance(value, str) and value in GATES:
        return [f"the gate is a keyword: gate={value!r}"]
    if "Tensor" in expected and (isinstance(value, list) or hasattr(value, "__array__")):
        return ["torch.as_tensor makes one of it"]
    choices = {"approximate": APPROXIMATE, "gate": GATES}.get(name)
    return [_one_of(choices)] if choices else []


def _one_of(choices: dict[str, str]) -> str:
    return f"one of {' '.join(map(repr, choices))}"


def _called() -> str:
    """The name of the outermost function of this package on the stack; empty if there is none."""
    frame, name = sys._getframe(1), ""
    while frame and frame.f_globals.get("__name__", "").startswith(__package__):
        if frame.f_globals is not globals():
            name = frame.f_code.co_name
        frame = frame.f_back
    return name
