"""Sizes, strides, offsets and memory: where a tensor lies makes no difference to any element.

Results of contiguous tensors are compared with the reference in float64. All results must equal
the results of contiguous clones bit for bit. Fake tensors must tell what real ones turn out to be.
"""

from itertools import islice

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests import bits
from tests.calls import CALLS, CORE_CALLS, DTYPES, ROUNDING, Call, Make, Sample, Shape, normal
from tests.cases import each
from tests.layouts import LAYOUTS, SHAPES, SIZES, arrangements


def maker(dtype: torch.dtype, device: str) -> Make:
    return lambda *shape: normal(*shape, dtype=dtype, device=device)


def check(call: Call, tensors: list[Tensor]) -> None:
    before = [t.clone() for t in tensors]
    results = call(*tensors)
    plain = call(*(t.clone(memory_format=torch.contiguous_format) for t in tensors))
    assert all(map(bits.same, results, plain)), "other bits than of contiguous tensors"
    if all(t.is_contiguous() for t in tensors):
        check_values(Sample(call, call.gates[0], tensors), results)
    assert all(map(bits.same, tensors, before)), "it writes to its inputs"
    own, given = (
        [t.untyped_storage().data_ptr() for t in ts if t.numel()] for ts in (results, tensors)
    )
    assert len({*own}) == len(own) and not {*own} & {*given}, "results share memory"


def check_values(sample: Sample, results: tuple[Tensor, ...]) -> None:
    for result, expected in zip(results, sample.expected(), strict=True):
        if result.is_floating_point():
            tolerance = {"rtol": ROUNDING[result.dtype], "atol": ROUNDING[result.dtype]}
            terms = results[0].numel() / max(result.numel(), 1)  # of a sum, whose errors add up
            scale = max(1.0, terms**0.5, float(expected.abs().amax()) if expected.numel() else 0.0)
            torch.testing.assert_close(result.double() / scale, expected / scale, **tolerance)
        else:
            assert torch.equal(result, expected)


# `make test` has a dtype of each size, which takes 12 s less.
SELDOM = [torch.float64, torch.float16]

# Of float32 all shapes, of the other dtypes the first two.
OF_DTYPES = [(d, s) for d in DTYPES for s in (SHAPES if d == torch.float32 else SHAPES[:2])]


@each(
    lambda of_dtype, **_: of_dtype[0] in SELDOM,
    call=CORE_CALLS,
    layout=LAYOUTS,
    of_dtype=OF_DTYPES,
)
def test_layouts(call: Call, layout: str, of_dtype: tuple, device: str) -> None:
    dtype, shape = of_dtype
    for tensors in arrangements(call, LAYOUTS[layout], shape, maker(dtype, device)):
        check(call, tensors)


# One of each size in one dimension and in two, one for several threads, and a scalar.
ALL_SIZES = [s for size in SIZES for s in ((size,), (2, size), (size, 2))] + [(700, 131), ()]


@each(lambda dtype, **_: dtype in SELDOM, call=CORE_CALLS, dtype=DTYPES, shape=ALL_SIZES)
def test_sizes(call: Call, dtype: torch.dtype, shape: Shape, device: str) -> None:
    if shape or call.takes_scalars:  # else bad_inputs.py has the scalar
        check(call, call.inputs(shape, maker(dtype, device)))


@each(
    call=CORE_CALLS,
    layout=["contiguous", "transposed", "one number", "misaligned by 1"],
    shape=[(0, 5), (5, 0), (2, 0, 3), (0, 0)],
)
def test_empty(call: Call, layout: str, shape: Shape, device: str) -> None:
    for tensors in arrangements(call, LAYOUTS[layout], shape, maker(torch.float32, device)):
        check(call, tensors)


# The strides of results


def description(results: tuple[Tensor, ...]) -> list[tuple]:
    return [(t.shape, t.stride(), t.storage_offset(), t.dtype, t.device) for t in results]


@each(call=CALLS, layout=LAYOUTS, shape=SHAPES)
def test_strides(call: Call, layout: str, shape: Shape, device: str) -> None:
    """Dense ones are kept; a gap or an expanded dimension is not passed on."""
    tensors = next(arrangements(call, LAYOUTS[layout], shape, maker(torch.float32, device)))
    given = dict(zip(call.tensors, tensors, strict=True))
    for name, result in zip(call.op.outputs, call(*tensors), strict=True):
        like = given.get(name.removeprefix("d"), given[call.leading])
        if like.shape == result.shape:
            assert result.stride() == torch.empty_like(like).stride(), name
        else:
            assert result.is_contiguous(), name


# A fake tensor takes a millisecond: in `make test` few layouts are of one tensor alone, and in
# another dtype.
MIXED = ["transposed", "gaps everywhere", "one row"]
FAKE = [(torch.float32, SHAPES[0], 1), (torch.float32, SHAPES[0], None)]
FAKE += [(torch.bfloat16, SHAPES[1], None)]


@each(
    lambda call, layout, kind: kind != FAKE[0] and (kind != FAKE[2] or layout not in MIXED),
    call=CALLS,
    layout=LAYOUTS,
    kind=FAKE,
)
def test_fake_tensors(call: Call, layout: str, kind: tuple, device: str) -> None:
    """They tell the shape, strides, offset, dtype and device of the real results."""
    dtype, shape, count = kind
    arranged = arrangements(call, LAYOUTS[layout], shape, maker(dtype, device))
    for tensors in islice(arranged, count):
        real = description(call(*tensors))
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(t) for t in tensors]
            assert description(call.through_torch(*fakes)) == real


@each(call=CALLS)
def test_fake_tensors_on_another_device(call: Call) -> None:
    with FakeTensorMode():
        tensors = call.inputs((6, 4), lambda *s: torch.empty(s, device="cuda"))
        assert all(t.device.type == "cuda" for t in call.through_torch(*tensors))
