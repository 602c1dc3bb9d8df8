"""The gates: for each, its functions and their constants."""

from typing import NamedTuple

from triton.runtime.jit import KernelInterface

from gelu_kernels.triton_kernels import normal, sigmoid
from gelu_kernels.triton_kernels.coefficients import Constants
from gelu_kernels.triton_kernels.coefficients import sigmoid as sigmoid_numbers
from gelu_kernels.triton_kernels.constants import Table, normal_constants, sigmoid_constants


class Gate(NamedTuple):
    """Functions of x and of the constants for a precision: ``fp64``, ``fp32``, ``fp16``, ``bf16``,
    ``fast_bf16`` for the value of a bfloat16 by the special function unit, and ``random`` for the
    mask of the SOI map."""

    value: KernelInterface
    derivative: KernelInterface
    second_derivative: KernelInterface
    in_tail: KernelInterface  # whether u < 2^32 F(-|x|) - 1, for ``random``
    constants: Table
    may_tie: bool  # see ``storage``


def _sigmoid(numbers: Table) -> Gate:
    return Gate(
        sigmoid.value,
        sigmoid.derivative,
        sigmoid.second_derivative,
        sigmoid.in_tail,
        sigmoid_constants(numbers),
        may_tie=True,
    )


GATES = {
    "normal": Gate(
        normal.value,
        normal.derivative,
        normal.second_derivative,
        normal.in_tail,
        normal_constants(),
        may_tie=False,
    ),
    "normal_tanh": _sigmoid(sigmoid_numbers.NormalTanhConstants),
    "logistic_1702": _sigmoid(sigmoid_numbers.Logistic1702Constants),
}


def constants(gate: str, precision: str, backend: str) -> Constants:
    """For the compiler: everything that the functions of a gate ask of a precision and a target."""
    is_half = precision not in ("fp64", "fp32")
    return Constants(
        **vars(GATES[gate].constants[precision]),
        precision=precision,
        is_half=is_half,
        may_tie=GATES[gate].may_tie,
        backend=backend,
    )
