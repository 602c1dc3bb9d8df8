"""Octets, eight elements that share a byte of a mask: their places, random words and values, and
the byte.

A thread works on words of two 16-bit elements, as in csrc/cuda/vector.h; the compiler would split
them and work on each."""

import triton
import triton.language as tl

from gelu_kernels.triton_kernels.arithmetic import bits
from gelu_kernels.triton_kernels.philox import philox, words_of_elements, words_of_half
from gelu_kernels.triton_kernels.storage import widened


@triton.jit
def first_of(x, y):
    return x


@triton.jit
def beside(value, x, C: tl.constexpr):
    """64-bit values for each row of x, in the threads that have it. It takes no instruction, and
    does not wait for x."""
    if C.backend == "cuda":
        own = bits(widened(tl.reduce(x, len(x.shape) - 1, first_of))).to(tl.int32)
        return tl.inline_asm_elementwise(
            "mov.b64 $0, $1;", "=l,l,r", [value, own], value.dtype, True, 1
        )
    else:
        return value


@triton.jit
def random_words(seed, octet, x, C: tl.constexpr):
    """The words of octets of the whole tensor. A thread computes all words of its vectors of x, so
    that threads exchange none. Without `beside` Triton would draw them elsewhere, and exchange
    them in 16 steps, with a barrier after each."""
    count: tl.constexpr = octet.shape[0]
    if x.dtype.primitive_bitwidth == 16:
        octet = beside(octet, x, C)
        a0, a1, a2, a3 = philox(octet, 0, seed, C)
        b0, b1, b2, b3 = philox(octet, 1, seed, C)
        words = tl.join(words_of_half(a0, a1, b0, b1, C), words_of_half(a2, a3, b2, b3, C))
        words = tl.permute(words, (0, 3, 1, 2))
    else:
        is_first = (tl.arange(0, 2) == 0)[None, :]
        pair = octet[:, None] + tl.zeros((1, 2), octet.dtype)
        pair = beside(pair, tl.reshape(x, (count, 2, 4)), C)
        a0, a1, a2, a3 = philox(pair, 0, seed, C)
        b0, b1, b2, b3 = philox(pair, 1, seed, C)
        words = words_of_half(
            tl.where(is_first, a0, a2),
            tl.where(is_first, a1, a3),
            tl.where(is_first, b0, b2),
            tl.where(is_first, b1, b3),
            C,
        )
    return tl.reshape(words, (count, 8))


@triton.jit
def elements_of(begin):
    """The places of the elements of octets that begin at `begin`."""
    return begin[:, None] + tl.arange(0, 8)[None, :]


@triton.jit
def in_matrix(row, column, rows, columns):
    """How many elements of each octet are in the matrix, and which. Its first element is at `row`
    and `column`."""
    left = tl.where(row < rows, tl.minimum(columns - column, 8), 0).to(tl.int32)
    return left, tl.arange(0, 8)[None, :] < left[:, None]


@triton.jit
def place_along(first, begin, column, repeat):
    """The places of the elements of octets in a vector along the columns, or in one that repeats
    after `repeat` elements. The octets begin `begin` elements after element number `first`."""
    if repeat is None:
        return elements_of(column)
    else:
        return elements_of(first + begin) % repeat


@triton.jit
def words_of_octets(key, first, begin, index, x, C: tl.constexpr, GROUPED: tl.constexpr):
    """The random words of octets x that begin `begin` elements after element number `first`.
    `index` is the operators' offset, row_length and row_stride, the last two or None. GROUPED: the
    octets are octets of the whole tensor."""
    offset, row_length, row_stride = index
    if GROUPED:
        return random_words(key, ((offset + first) >> 3) + (begin >> 3), x, C)
    elif row_length is None:
        return words_of_elements(key, elements_of(offset + first + begin), C)
    else:
        element = elements_of(first + begin)
        at = offset + element // row_length * row_stride + element % row_length
        return words_of_elements(key, at, C)


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
    if C.backend == "cuda":  # so that whole words are added, not the bytes that remain of them
        byte = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [byte], tl.int32, True, 1)
    return byte.to(tl.uint8)
