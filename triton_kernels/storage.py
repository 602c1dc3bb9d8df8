"""csrc/gates/storage.h in Triton: converts stored numbers to the type of the formulas, and back."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import at_most, bits, constant, from_bits, negated


@triton.jit
def widened(x):
    """x in the type in which gates are evaluated."""
    if x.dtype == tl.float64:
        return x
    else:
        return x.to(tl.float32)


@triton.jit
def number(x, C: tl.constexpr):
    """x as float32 or float64: ``widened``, but two elements at a time. x has an even number."""
    if C.backend == "cuda" and x.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], tl.float32, True, 2
        )
    else:
        return widened(x)


@triton.jit
def with_sign_of(x, y, C: tl.constexpr):
    """|y| with the sign of x, both of 16 bits."""
    if C.backend == "cuda":  # two at a time; the code below would take eight instructions
        return tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, 0x80008000, 0xe4;", "=r,r,r", [x, y], y.dtype, True, 2
        )
    else:
        signs = x.to(tl.int16, bitcast=True) & -0x8000
        return (signs | (y.to(tl.int16, bitcast=True) & 0x7FFF)).to(y.dtype, bitcast=True)


@triton.jit
def round_value(y, x, C: tl.constexpr):
    """Rounds the value of a gate at a stored x: in 16 bits to nearest, ties towards +infinity.

    Ties among subnormal numbers are first moved up, by less than half a unit of any normal number.
    If the gate has other ties, even floats become odd: an odd float lies on the same side of every
    tie and is never one itself. Every value, also a zero, gets the sign of x.
    """
    if x.dtype.primitive_bitwidth == 16:
        if x.dtype == tl.bfloat16:
            y += 2.0**-149
        elif C.ties != "none":
            y += 1.5 * 2.0**-48
            if C.ties == "any":
                u = bits(at_most(y, 2.0**17))  # infinity would become NaN
                y = from_bits((u + (u >> 31)) | 1)
        return with_sign_of(x, y.to(x.dtype), C)
    else:
        return y


@triton.jit
def as_factor(y, C: tl.constexpr):
    """The value y of a gate as a factor: see csrc/gates/pointwise.h."""
    if C.last_zero is None:
        return y
    else:
        return tl.where(bits(y) <= C.last_zero, negated(constant(0.0, y)), y)
