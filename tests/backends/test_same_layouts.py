"""The other backends give the bits of the CPU's for any size, layout and place in a whole, and
differentiate as it does. For `make test` are, in Triton, few sizes, few layouts and large tiles.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice, product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from gelu_kernels.operators.table import CORE
from gelu_kernels.triton_kernels import tuning
from tests import bits
from tests.backends.same_bits import (
    TRITON_CALLS,
    check,
    every,
    maker,
    needs_triton_ptx,
    none,
    on_backends,
)
from tests.calls import CORE_CALLS, DTYPES, SEED, Call, normal
from tests.devices import BACKENDS, kernels_for
from tests.layouts import LAYOUTS, arrangements

every_backend = pytest.mark.parametrize("backend", BACKENDS)

# Sizes and layouts: around a vector, a warp's and a block's elements, and a block of rows

SIZES = [0, 1, 2, 7, 8, 9, 31, 33, 63, 64, 65, 255, 257, 1000, 4099, 33_333]
SHAPES = [
    (0, 5), (5, 0), (3, 1), (5, 7), (17, 32), (2, 3, 20), (67, 264), (300, 513), (3, 10_000),
    (1023, 33), (40_000, 5), (2, 8, 3, 24),
]  # fmt: skip


@pytest.mark.parametrize(
    "backend, call, dtype",
    on_backends(
        product(CORE_CALLS, DTYPES),
        lambda call, dtype: dtype == torch.bfloat16,
        none,
    ),
    ids=str,
)
def test_sizes(backend: str, call: Call, dtype: torch.dtype) -> None:
    for shape in [(size,) for size in SIZES] + SHAPES:
        check(backend, call, lambda device, s=shape: call.inputs(s, maker(dtype, device)))


@pytest.mark.parametrize(
    "backend, call, dtype, left",
    on_backends(
        product(CORE_CALLS, [torch.bfloat16, torch.float32], range(4)),
        lambda call, dtype, left: dtype == torch.bfloat16 and left in (0, 3),
        none,
    ),
    ids=str,
)
def test_large_tensors(backend: str, call: Call, dtype: torch.dtype, left: int) -> None:
    """Several rows for a warp, and so many left for the last one."""
    tensors = bits.large_tensors(call, dtype, left)
    check(backend, call, lambda device: [t.to(device) for t in tensors])


@pytest.mark.parametrize("call", TRITON_CALLS, ids=str)
def test_few_sizes_in_triton(call: Call) -> None:
    """A tail alone, whole vectors and a tail, rows of both kinds, several tiles and a part."""
    needs_triton_ptx()
    for shape in [(1,), (33,), (5, 7), (3, 264), (43, 513)]:

        def build(device: str, shape=shape) -> list[Tensor]:
            return call.inputs(shape, maker(torch.bfloat16, device))

        check("triton_ptx", call, build)


@pytest.mark.parametrize(
    "backend, call, layout",
    on_backends(product(CORE_CALLS, LAYOUTS), every, none),
    ids=str,
)
def test_layouts(backend: str, call: Call, layout: str) -> None:
    for dtype, shape in product(
        (torch.float32, torch.bfloat16), [(3, 4, 5, 6), (9, 40), (2, 1031)]
    ):

        def build(device: str, i: int, dtype=dtype, shape=shape) -> list[Tensor]:
            found = arrangements(call, LAYOUTS[layout], shape, maker(dtype, device))
            return next(islice(found, i, None))

        all_of_them = len(list(arrangements(call, LAYOUTS[layout], shape, torch.empty)))
        for i in range(all_of_them if dtype == torch.bfloat16 else 1):
            check(backend, call, partial(build, i=i))


@pytest.mark.parametrize(
    "layout", ["second half", "every other column", "transposed", "one number"]
)
@pytest.mark.parametrize("call", TRITON_CALLS, ids=str)
def test_few_layouts_in_triton(call: Call, layout: str) -> None:
    """One of each kind of kernel: rows apart, columns apart, columns first, an expanded input."""
    needs_triton_ptx()

    def build(device: str) -> list[Tensor]:
        return next(arrangements(call, LAYOUTS[layout], (6, 40), maker(torch.bfloat16, device)))

    check("triton_ptx", call, build)


@pytest.mark.parametrize(
    "backend, call, offset",
    on_backends(product(CORE_CALLS, [1, 3]), every, lambda call, _: call == CORE_CALLS[0]),
    ids=str,
)
def test_misaligned(backend: str, call: Call, offset: int) -> None:
    layout = LAYOUTS[f"misaligned by {offset}"]
    for dtype in (torch.bfloat16, torch.float64):
        for shape in [(40,), (3, 72)]:

            def build(device: str, dtype=dtype, shape=shape) -> list[Tensor]:
                return next(arrangements(call, layout, shape, maker(dtype, device)))

            check(backend, call, build)


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tensors of any size."""
    monkeypatch.setattr(tuning, "SMALL_BYTES", 0)
    plans = tuning.map_tiles, tuning.soi_tiles
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("call", TRITON_CALLS, ids=str)
def test_tiles_of_large_tensors(call: Call, dtype: torch.dtype, large_tiles: None) -> None:
    """Several vectors, or octets, for a thread, in Triton."""
    needs_triton_ptx()
    for shape in [(5, 1000), (3, 33)]:
        check("triton_ptx", call, lambda device, s=shape: call.inputs(s, maker(dtype, device)))


# A GLU that is clamped and has no weight, which may be one long row; the sums that are the gradient
# of its weights, whose order 16 bits hide


@pytest.mark.parametrize(
    "backend, dtype, shape",
    on_backends(
        product(DTYPES, [(40_000,), (3, 520), (7, 33)]),
        every,
        lambda dtype, shape: dtype in (torch.bfloat16, torch.float32) and len(shape) == 2,
    ),
    ids=str,
)
def test_clamped_glu(backend: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    dy, x, up = (maker(dtype, "cpu")(*shape) for _ in range(3))
    numbers = "logistic_1702", 1.5, 1.0

    def results(device: str) -> list[Tensor]:
        two = [t.to(device) for t in (x, up)]
        both, given, weight = torch.cat(two, -1), dy.to(device), x[..., 0].to(device)
        ops = torch.ops.gelu_kernels
        return [
            ops.glu_forward(*two, None, *numbers),
            *ops.glu_backward(given, *two, None, *numbers),
            *ops.glu_backward_weight(given, *two, weight, *numbers),
            ops.glu_halves_forward(both, None, *numbers),
            ops.glu_halves_backward(given, both, None, *numbers),
        ]

    expected = results("cpu")
    with kernels_for(backend) as device:
        found = results(device)
    for result, e in zip(found, expected, strict=True):
        assert bits.differing(result.cpu(), e) == 0


# The registered kernels differentiate and trace as on the CPU


@pytest.fixture
def device(backend: str) -> Iterator[str]:
    with kernels_for(backend) as device:
        yield device


@every_backend
@pytest.mark.parametrize("op", CORE, ids=lambda op: op.name)
def test_gradcheck_and_opcheck(backend: str, op, device: str) -> None:
    call = [call for call in CORE_CALLS if call.op == op][-1]
    sample = call.sample((2, 3), lambda *s: normal(*s, device=device))

    def floating(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t for t in sample.ours(*tensors) if t.is_floating_point())

    if op.name != "coded_forward":  # whose derivative is a code, not the slope of its values
        assert gradcheck(floating, sample.leaves(), fast_mode=True)
    arguments, _ = call.arguments(*sample.tensors)
    torch.library.opcheck(op.overload, arguments)


# The place of a part in a whole tensor, from which the SOI map draws

PLACES = [
    (1,), (2,), (3,), (4,), (4 * 7919,), (2**40 + 8,),
    (2**34 - 400,),  # the counter's high word begins to count
    (0, 1000, 3000),  # as many columns as x has
    (8, 512, 1024), (3, 100, 1001), (5, 17, 100), (0, 1, 7), (11, 5, 0), (2**34 - 30, 256, 300),
    (2, 10_000_000, 3),
]  # fmt: skip


@pytest.mark.parametrize(
    "backend, place",
    on_backends(zip(PLACES, strict=True), every, lambda place: place in PLACES[5:9]),
    ids=str,
)
def test_places(backend: str, place: tuple[int, ...]) -> None:
    """test_soi_cdf.py has them with a location and a scale."""

    def soi_forward(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        seed = torch.tensor(SEED, device=x.device)
        return torch.ops.gelu_kernels.soi_forward(x, bias, seed, "normal", *place)

    for dtype in (torch.bfloat16, torch.float64):
        x, bias = normal(5, 1001, dtype=dtype), normal(1000, dtype=dtype)
        for columns in (slice(1000), slice(1, 1001)):
            for b in (None, bias):
                expected = soi_forward(x[:, columns], b)
                with kernels_for(backend) as device:
                    given = x.to(device)[:, columns], None if b is None else b.to(device)
                    results = soi_forward(*given)
                for result, e in zip(results, expected, strict=True):
                    assert bits.differing(result.cpu(), e) == 0
