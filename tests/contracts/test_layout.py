"""Sizes, strides, offsets and memory: where a tensor lies makes no difference to any element.

Results on contiguous tensors are compared with the reference in float64, and all results, bit for
bit, with those on contiguous clones; what fake tensors are told, with what turns out.
"""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests import bits
from tests.calls import CALLS, CORE_CALLS, DTYPES, ROUNDING, Call, Make, Sample, normal
from tests.layouts import LAYOUTS, SHAPES, SIZES, arrangements

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_core_call = pytest.mark.parametrize("call", CORE_CALLS, ids=str)


def maker(dtype: torch.dtype, device: str) -> Make:
    return lambda *shape: normal(*shape, dtype=dtype, device=device)


def check(call: Call, tensors: list[Tensor]) -> None:
    sample = Sample(call, call.gates[0], tensors)
    contiguous = all(t.is_contiguous() for t in tensors)
    before = [t.clone() for t in tensors]
    results = call(*tensors)
    plain = call(*(t.clone(memory_format=torch.contiguous_format) for t in tensors))
    assert all(map(bits.same, results, plain))
    for result, expected in zip(results, sample.expected(), strict=True) if contiguous else ():
        if result.is_floating_point():
            tolerance = {"rtol": ROUNDING[result.dtype], "atol": ROUNDING[result.dtype]}
            terms = results[0].numel() / max(result.numel(), 1)  # of a sum, whose errors add up
            scale = max(1.0, terms**0.5, *expected.abs().flatten().tolist())
            torch.testing.assert_close(result.double() / scale, expected / scale, **tolerance)
        else:
            assert torch.equal(result, expected)
    for t, b in zip(tensors, before, strict=True):
        assert bits.same(t, b)
    own, given = (
        [t.untyped_storage().data_ptr() for t in ts if t.numel()] for ts in (results, tensors)
    )
    assert len({*own}) == len(own) and not {*own} & {*given}


@every_core_call
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, call: Call, device: str) -> None:
    for dtype in DTYPES:
        for shape in SHAPES if dtype == torch.float32 else SHAPES[:2]:
            for tensors in arrangements(call, LAYOUTS[layout], shape, maker(dtype, device)):
                check(call, tensors)


@every_core_call
@every_dtype
def test_sizes(dtype: torch.dtype, call: Call, device: str) -> None:
    """The largest is for several threads."""
    for shape in [s for size in SIZES for s in ((size,), (2, size), (size, 2))] + [(700, 131)]:
        check(call, call.inputs(shape, maker(dtype, device)))


@every_core_call
@every_dtype
def test_scalars(dtype: torch.dtype, call: Call, device: str) -> None:
    """Of the operators without columns and halves, as the errors' tests say."""
    outputs = call.op.outputs.values()
    if any(e.name in ("COLUMNS", "ROWS", "HALVES") for e in (*call.tensors.values(), *outputs)):
        pytest.skip("needs a last dimension")
    check(call, call.inputs((), maker(dtype, device)))


@every_core_call
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3), (0, 0)], ids=str)
def test_empty(shape: tuple[int, ...], call: Call, device: str) -> None:
    for layout in ("contiguous", "transposed", "one number", "misaligned by 1"):
        for tensors in arrangements(call, LAYOUTS[layout], shape, maker(torch.float32, device)):
            check(call, tensors)


# The strides of results


def description(results: tuple[Tensor, ...]) -> list[tuple]:
    return [(t.shape, t.stride(), t.storage_offset(), t.dtype, t.device) for t in results]


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str, call: Call, device: str) -> None:
    """Dense ones are kept; a gap or an expanded dimension is not passed on."""
    for shape in SHAPES:
        tensors = next(arrangements(call, LAYOUTS[layout], shape, maker(torch.float32, device)))
        given = dict(zip(call.tensors, tensors, strict=True))
        results = dict(zip(call.op.outputs, call(*tensors), strict=True))
        for name, result in results.items():
            like = given.get(name.removeprefix("d"), given[call.leading])
            if like.shape == result.shape:
                assert result.stride() == torch.empty_like(like).stride(), name
            else:
                assert result.is_contiguous(), name


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fake_tensors(layout: str, call: Call, device: str) -> None:
    """Shape, strides, offset, dtype and device are told as they turn out to be."""
    for dtype, shape in ((torch.float32, SHAPES[0]), (torch.bfloat16, SHAPES[1])):
        for tensors in arrangements(call, LAYOUTS[layout], shape, maker(dtype, device)):
            real = description(call(*tensors))
            with FakeTensorMode() as mode:
                fakes = [mode.from_tensor(t) for t in tensors]
                assert description(call.through_torch(*fakes)) == real


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_fake_tensors_on_another_device(call: Call) -> None:
    with FakeTensorMode():
        tensors = call.inputs((6, 4), lambda *s: torch.empty(s, device="cuda"))
        assert all(t.device.type == "cuda" for t in call.through_torch(*tensors))
