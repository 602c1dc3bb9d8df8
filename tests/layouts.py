"""The layouts of a tensor in memory.

A layout builds a tensor of any shape with ``make``, which returns contiguous ones.
"""

from collections.abc import Callable, Iterator
from math import prod

import torch
from torch import Tensor

from tests.calls import Call, Make, Shape

Layout = Callable[[Make, Shape], Tensor]


def gapped(step: int, start: int = 0) -> Layout:
    """Every ``step``-th column of wider rows."""
    return lambda make, s: make(*s[:-1], step * s[-1] + start)[..., start::step]


def misaligned(offset: int) -> Layout:
    return lambda make, s: make(prod(s) + offset)[offset:].view(s)


def permuted(*order: int) -> Layout:
    """Dense, with the dimensions in another order in memory."""

    def layout(make: Make, s: Shape) -> Tensor:
        dims = [d for d in order if d < len(s)]
        dims = [*dims, *(d for d in range(len(s)) if d not in dims)]
        return make(*(s[d] for d in dims)).permute([dims.index(d) for d in range(len(s))])

    return layout


def channels_last(make: Make, s: Shape) -> Tensor:
    t = make(*s)
    return t.contiguous(memory_format=torch.channels_last) if len(s) == 4 else t


def negative(make: Make, s: Shape) -> Tensor:
    """A view with the negative bit set, as the imaginary part of a conjugate has."""
    return torch._neg_view(make(*s))


def half_transposed(make: Make, s: Shape) -> Tensor:
    if len(s) < 2:
        return make(2 * s[0])[: s[0]]
    return make(*s[:-2], 2 * s[-1], s[-2])[..., : s[-1], :].mT


def gaps_everywhere(make: Make, s: Shape) -> Tensor:
    return make(*(2 * n + 1 for n in s))[tuple(slice(1, None, 2) for _ in s)]


LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda make, s: make(*s),
    "first half": lambda make, s: make(*s[:-1], 2 * s[-1]).chunk(2, -1)[0],
    "second half": lambda make, s: make(*s[:-1], 2 * s[-1]).chunk(2, -1)[1],
    "block": lambda make, s: make(*(n + 2 for n in s))[tuple(slice(1, n + 1) for n in s)],
    "rows apart": lambda make, s: make(3 * s[0], *s[1:])[::3],
    "every other column": gapped(2),
    "every third column": gapped(3, 1),
    "gaps everywhere": gaps_everywhere,
    "transposed": lambda make, s: make(*s[::-1]).permute(*reversed(range(len(s)))),
    "half, transposed": half_transposed,
    "leading dimensions swapped": permuted(1, 0),
    "permuted": permuted(2, 0, 3, 1),
    "channels_last": channels_last,
    "one number": lambda make, s: make(1).squeeze(0).expand(s),
    "one row": lambda make, s: make(s[-1]).expand(s),
    "one column": lambda make, s: make(*s[:-1], 1).expand(s),
    "one matrix": lambda make, s: make(1, *s[1:]).expand(s),
    "overlapping rows": lambda make, s: make(2 * sum(s)).as_strided(s, (*[1] * (len(s) - 1), 2)),
    "misaligned by 1": misaligned(1),
    "misaligned by 3": misaligned(3),
    "negative": negative,
}

# On both sides of a vector's length of each dtype and of the loops' blocks; the sizes of 2-d rows
# lie on both sides of blocks of rows and of tiles of columns.
SIZES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000, 4099]
SHAPES: list[Shape] = [(3, 4, 5, 6), (9, 40), (2, 1031), (70, 3), (50,)]


def arrangements(call: Call, layout: Layout, shape: Shape, make: Make) -> Iterator[list[Tensor]]:
    """The call's tensors, all in the layout; then each floating one alone in it."""

    def arranged(chosen: set[str]) -> list[Tensor]:
        def placed(name: str) -> Make:
            return (lambda *s: layout(make, s)) if name in chosen else make

        return [call.input(name, shape, placed(name)) for name in call.tensors]

    floating = [name for name in call.floating if name != "scale"]  # of positive numbers
    yield arranged(set(floating))
    if len(floating) > 1:
        for name in floating:
            yield arranged({name})
