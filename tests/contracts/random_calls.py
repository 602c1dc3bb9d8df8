"""Random calls, drawn by Hypothesis: operator, gate, dtype, shape, layouts and numbers."""

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from torch import Tensor

from tests.calls import DTYPES, Call, Make, Sample, Shape, normal, positive
from tests.layouts import LAYOUTS
from tests.oracles import error_bounds

# Numbers have one of these spreads; in some calls one special number takes the place of some. With
# the widest the gates' values underflow.

SPREADS = st.sampled_from([0.01, 1.0, 3.0, 30.0])


def specials(dtype: torch.dtype, finite: bool) -> list[float]:
    info = torch.finfo(dtype)
    # The reference multiplies too, in float64.
    largest = info.max if dtype != torch.float64 else info.max / 2**20
    magnitudes = [0.0, error_bounds.least(dtype), info.smallest_normal, largest]
    numbers = [*magnitudes, *(-m for m in magnitudes)]
    return numbers if finite else [*numbers, torch.nan, torch.inf, -torch.inf]


# Sizes: none, one, on both sides of a vector's and of a block's, some odd and some large.

ODD = st.integers(0, 70)
SIZES = st.one_of(ODD, ODD, st.sampled_from([127, 128, 129, 255, 256, 257, 511, 513, 1031]))
SHAPES = st.one_of(
    st.tuples(SIZES),
    st.tuples(st.integers(0, 9), SIZES),
    st.tuples(SIZES, st.integers(0, 9)),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.tuples(*[st.integers(1, 4)] * 4),
    st.sampled_from([(), (1,), (700, 3), (65, 33), (3, 4099), (33_000,)]),
)


ALL_LAYOUTS = st.sampled_from([*LAYOUTS])
# PyTorch gives a tangent the strides of its tensor: where elements share memory, tangents do too.
WITHOUT_OVERLAP = st.sampled_from([n for n in LAYOUTS if not n.startswith(("one", "overlapping"))])


def draw_sample(
    data: DataObject,
    calls: list[Call],
    dtypes: list[torch.dtype] = DTYPES,
    shapes: SearchStrategy[Shape] = SHAPES,
    layouts: SearchStrategy[str] = ALL_LAYOUTS,
    finite: bool = False,
) -> Sample:
    call = data.draw(st.sampled_from(calls))
    gate = data.draw(st.sampled_from(call.gates))
    dtype = data.draw(st.sampled_from(dtypes))
    shape = data.draw(shapes)
    if not shape and not call.takes_scalars:
        shape = (1,)
    spread = data.draw(SPREADS)
    # torch.manual_seed, which looks for GPUs, would take as long as the call.
    torch.default_generator.manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    special = None
    # docs/guide/gates.md says where these are not the formula's. The oracle of codes takes ordinary
    # numbers, and that of the SOI map an ordinary loc.
    if call.op.family not in ("cdf", "coded") and data.draw(st.booleans()):
        names = [name for name in call.floating if name not in ("loc", "scale")]
        numbers = specials(dtype, finite)
        special = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(numbers))

    def maker(name: str) -> Make:
        def make(*shape: int) -> Tensor:
            t = normal(*shape) * (spread if name in ("x", "bias") else min(spread, 3))
            if special and special[0] == name:
                t[torch.rand(shape) < 1 / 8] = special[1]
            return (positive(t) if name == "scale" else t).to(dtype)

        if not shape or name not in call.floating:
            return make
        layout = data.draw(layouts)
        if name == "scale" and layout == "negative":
            layout = "contiguous"
        return lambda *s: LAYOUTS[layout](make, s)

    return Sample(call, gate, [call.input(name, shape, maker(name)) for name in call.tensors])
