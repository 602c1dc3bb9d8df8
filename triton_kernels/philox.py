"""csrc/random/philox.h in Triton; its comments apply here too.

Triton's own generator has ten rounds, and multiplies twice to get both halves of a product.
"""

import triton
import triton.language as tl


@triton.jit
def product(M: tl.constexpr, c, C: tl.constexpr):
    """The high and the low half of M c."""
    if C.backend == "cuda":  # the compiler would take c for a number of 64 bits in some rounds
        both = tl.inline_asm_elementwise(
            f"mul.wide.u32 $0, $1, {M};", "=l,r", [c], tl.uint64, True, 1
        )
    else:
        both = c.to(tl.uint64) * M
    return (both >> 32).to(tl.uint32), both.to(tl.uint32)


@triton.jit
def philox(octet, PART: tl.constexpr, seed, C: tl.constexpr):
    """The four words of each octet's part PART."""
    c0, c1 = octet.to(tl.uint32), (octet >> 32).to(tl.uint32)
    c2, c3 = tl.full(c0.shape, PART, tl.uint32), tl.zeros_like(c0)
    key_0, key_1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(7):
        high_0, low_0 = product(0xD2511F53, c0, C)
        high_2, low_2 = product(0xCD9E8D57, c2, C)
        c0, c1, c2, c3 = high_2 ^ c1 ^ key_0, low_2, high_0 ^ c3 ^ key_1, low_0
        key_0 += 0x9E3779B9
        key_1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def seed_of(argument):
    """The seed, if the argument is its address or its value."""
    if argument.dtype.is_ptr():
        return tl.load(argument)
    else:
        return argument.to(tl.int64)


@triton.jit
def bytes_of(x, y, SELECTOR: tl.constexpr):
    return tl.inline_asm_elementwise(
        f"prmt.b32 $0, $1, $2, {SELECTOR};", "=r,r,r", [x, y], tl.uint32, True, 1
    )


@triton.jit
def words_of_pair(first, second, C: tl.constexpr):
    """The random words of an even element and the next one, from a word of each part."""
    if C.backend == "cuda":  # an instruction each
        return bytes_of(second, first, 0x5410), bytes_of(second, first, 0x7632)
    else:
        return first << 16 | (second & 0xFFFF), (first & 0xFFFF0000) | second >> 16


@triton.jit
def words_of_half(first_0, first_1, second_0, second_1, C: tl.constexpr):
    """The random words of four elements, in two more dimensions, 2 x 2."""
    w0, w1 = words_of_pair(first_0, second_0, C)
    w2, w3 = words_of_pair(first_1, second_1, C)
    return tl.join(tl.join(w0, w2), tl.join(w1, w3))


@triton.jit
def chosen(words, place):
    """The one of four words that holds a half of the element at this place in its octet."""
    w0, w1, w2, w3 = words
    return tl.where(place < 4, tl.where(place < 2, w0, w1), tl.where(place < 6, w2, w3))


@triton.jit
def words_of_elements(seed, index, C: tl.constexpr):
    place = (index & 7).to(tl.int32)
    first = chosen(philox(index >> 3, 0, seed, C), place)
    second = chosen(philox(index >> 3, 1, seed, C), place)
    even, odd = words_of_pair(first, second, C)
    return tl.where((place & 1) == 0, even, odd)
