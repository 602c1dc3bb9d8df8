"""csrc/gates/storage.h in Triton: from numbers in memory to the type of a formula, and back."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import at_most, bits, constant, from_bits, negated


@triton.jit
def widened(x):
    """In the type that a gate is evaluated in."""
    if x.dtype == tl.float64:
        return x
    else:
        return x.to(tl.float32)


@triton.jit
def with_sign_of(x, y, C: tl.constexpr):
    """|y| with the sign of x, both of 16 bits."""
    if C.backend == "cuda":  # two at a time; the compiler makes eight instructions of that below
        return tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, 0x80008000, 0xe4;", "=r,r,r", [x, y], y.dtype, True, 2
        )
    else:
        signs = x.to(tl.int16, bitcast=True) & -0x8000
        return (signs | (y.to(tl.int16, bitcast=True) & 0x7FFF)).to(y.dtype, bitcast=True)


@triton.jit
def round_value(y, x, C: tl.constexpr):
    """The value of a gate for a stored x: in 16 bits to nearest, ties towards +infinity.

    First a tie among subnormal numbers is moved up, by less than a float of normal size would show.
    If the gate has ties elsewhere too, an odd float takes the place of an even one: it lies on the
    same side of any tie and is none itself. Every value, a zero as well, has the sign of x.
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
