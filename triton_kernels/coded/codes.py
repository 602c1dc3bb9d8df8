"""csrc/gates/codebook.h in Triton: codes of 8 or 4 bits for the derivative of a gate."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import constant, fma


@triton.jit
def encode(
    derivative, rounding, C: tl.constexpr, LEVELS: tl.constexpr, ZERO: tl.constexpr,
    NAN: tl.constexpr,
):  # fmt: skip
    """The code in the lowest bits, as many as it has."""
    code = fma(derivative.to(tl.float32), LEVELS, ZERO + rounding)
    if C.backend == "cuda":  # of a GPU's NaN all lower bits are 1, as of the code for it
        return tl.inline_asm_elementwise(
            "add.rz.f32 $0, $1, 0f4B000000;", "=r,r", [code], tl.int32, True, 1
        )
    else:
        return tl.where(code == code, code, NAN * 1.0).to(tl.int32)


@triton.jit
def decode(
    code, factor, dtype: tl.constexpr, LEVELS: tl.constexpr, ZERO: tl.constexpr, NAN: tl.constexpr
):
    """The factor of dy that a code stands for."""
    number = (code - ZERO).to(dtype)
    step = constant(1.0 / LEVELS, number)
    derivative = number * step * factor
    return tl.where(code == NAN, float("nan"), derivative)


@triton.jit
def load_codes(code, first, place, inside, BITS: tl.constexpr):
    """The codes of elements number first + place, as 32-bit integers."""
    element = first + place
    if BITS == 8:
        return tl.load(code + element, inside).to(tl.int32)
    else:
        pair = tl.load(code + (element >> 1), inside).to(tl.int32)
        return (pair >> ((element & 1) * 4).to(tl.int32)) & 15
