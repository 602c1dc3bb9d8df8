"""Octets, eight elements that share a byte of a mask: their random words, their numbers, the byte.

A thread works on words with two elements of 16 bits, as in csrc/cuda/vector.h, where the compiler
would take them apart and work on each."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.philox import words_of_group
from gelu_kernels.triton_kernels.storage import widened


@triton.jit
def random_words(seed, group, dtype: tl.constexpr):
    """The words of octets. An octet has two groups of words; `group` is the number of its first. A
    thread computes all words of its vectors, so that no word goes from one thread to another."""
    if dtype.primitive_bitwidth == 16:
        words = tl.join(words_of_group(seed, group), words_of_group(seed, group + 1))
        words = tl.permute(words, (0, 3, 1, 2))
    else:
        words = words_of_group(seed, group[:, None] + tl.arange(0, 2)[None, :])
    return tl.reshape(words, (group.shape[0], 8))


@triton.jit
def number(x, C: tl.constexpr):
    """x as a float32 or float64: ``widened``, but two at a time."""
    if C.backend == "cuda" and x.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], tl.float32, True, 2
        )
    else:
        return widened(x)


@triton.jit
def selected(x, m, C: tl.constexpr):
    """x where m, else 0."""
    if C.backend == "cuda" and x.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise(
            """{
                .reg .pred low, high;
                setp.ne.s32 low, $2, 0;
                setp.ne.s32 high, $3, 0;
                mov.b32 $0, $1;
                @!low and.b32 $0, $0, 0xffff0000;
                @!high and.b32 $0, $0, 0x0000ffff;
            }""",
            "=r,r,r,r",
            [x, m.to(tl.int32)],
            x.dtype,
            True,
            2,
        )
    else:
        return tl.where(m, x, 0.0)


@triton.jit
def byte_of(m, C: tl.constexpr):
    """The mask's byte for each octet: bit i is element i."""
    byte = tl.sum(tl.where(m, 1 << tl.arange(0, 8)[None, :], 0), axis=1)
    if C.backend == "cuda":  # so that words are added, and not the bytes that are left of them
        byte = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [byte], tl.int32, True, 1)
    return byte.to(tl.uint8)
