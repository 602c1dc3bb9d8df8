"""csrc/random/philox.h in Triton, and its comments hold here.

Triton's own generator has the same words, but multiplies twice for the two halves of a product.
"""

import triton
import triton.language as tl


@triton.jit
def product(M: tl.constexpr, c):
    """M c, of which the high half comes first."""
    both = c.to(tl.uint64) * M
    return (both >> 32).to(tl.uint32), both.to(tl.uint32)


@triton.jit
def philox(group, seed):
    """The words of a group."""
    c0, c1 = group.to(tl.uint32), (group >> 32).to(tl.uint32)
    c2, c3 = tl.zeros_like(c0), tl.zeros_like(c0)
    key_0, key_1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        high_0, low_0 = product(0xD2511F53, c0)
        high_2, low_2 = product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high_2 ^ c1 ^ key_0, low_2, high_0 ^ c3 ^ key_1, low_0
        key_0 += 0x9E3779B9
        key_1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def words_of_group(seed, group):
    """In dimensions of their own, 2 x 2."""
    w0, w1, w2, w3 = philox(group, seed)
    return tl.join(tl.join(w0, w2), tl.join(w1, w3))


@triton.jit
def words_of_elements(seed, index):
    w0, w1, w2, w3 = philox(index >> 2, seed)
    word = index & 3
    return tl.where(word < 2, tl.where(word == 0, w0, w1), tl.where(word == 2, w2, w3))
