"""The other backends give the bits of the CPU's for any size, layout and place in a whole, and
differentiate as it does. For `make test` are, in Triton, few sizes, few layouts and large tiles.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, product, starmap

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from gelu_kernels.operators.table import CORE
from gelu_kernels.triton_kernels import tuning
from tests import bits
from tests.backends.same_bits import (
    TRITON_PTX,
    Build,
    Make,
    check,
    each_family,
    every,
    has_sums,
    is_covered,
    laid_out,
    moved,
    on_backends,
)
from tests.calls import CORE_CALLS, DTYPES, SEED, Call, Sample, Shape, normal
from tests.devices import BACKENDS, kernels_for
from tests.layouts import LAYOUTS, arrangements

every_backend = pytest.mark.parametrize("backend", BACKENDS)

# Around a vector, the elements of a warp and of a block, and a block of rows.
SIZES = [(n,) for n in (0, 1, 2, 7, 8, 9, 31, 33, 63, 64, 65, 255, 257, 1000, 4099, 33_333)]
SHAPES = [
    *SIZES, (0, 5), (5, 0), (3, 1), (5, 7), (17, 32), (2, 3, 20), (67, 264), (300, 513),
    (3, 10_000), (1023, 33), (2, 8, 3, 24),
]  # fmt: skip
MANY_ROWS = (40_000, 5)  # for sums of columns
# In Triton a tail alone, whole vectors and a tail, rows of both kinds, several tiles and a part.
FEW_SHAPES = [(1,), (33,), (5, 7), (3, 264), (43, 513)]


ShapeCase = tuple[Call, torch.dtype, Shape]


@each_family(
    [
        (call, dtype, shape)
        for call, dtype in product(CORE_CALLS, DTYPES)
        for shape in [*SHAPES, *FEW_SHAPES, *[MANY_ROWS] * has_sums(call)]
    ],
    lambda call, dtype, shape: dtype == torch.bfloat16,
    lambda call, dtype, shape: (
        dtype == torch.bfloat16 and shape in FEW_SHAPES and not is_covered(call)
    ),
)
def test_sizes(backend: str, cases: list[ShapeCase]) -> None:
    check_shapes(backend, cases)


def check_shapes(backend: str, cases: list[ShapeCase]) -> None:
    check(
        backend,
        (
            (call, call.gates[0], laid_out(partial(call.inputs, shape), dtype), (dtype, shape))
            for call, dtype, shape in cases
        ),
    )


@each_family(
    product(CORE_CALLS, [torch.bfloat16, torch.float32], range(4)),
    lambda call, dtype, left: dtype == torch.bfloat16 and left == 3,
)
def test_large_tensors(backend: str, cases: list[tuple[Call, torch.dtype, int]]) -> None:
    """Several rows for a warp, and `left` rows for the last one."""
    check(
        backend,
        (
            (call, call.gates[0], moved(bits.large_tensors(call, dtype, left)), (dtype, left))
            for call, dtype, left in cases
        ),
    )


# In Triton one of each kind of kernel: rows apart, columns apart, columns first, an expanded input.
FEW_LAYOUTS = ["second half", "every other column", "transposed", "one number"]

LayoutCase = tuple[Call, str, torch.dtype, Shape, bool]


def layout_cases() -> Iterator[LayoutCase]:
    """The last says that each tensor is in the layout alone, not all of them."""
    for call, layout in product(CORE_CALLS, LAYOUTS):
        for shape in ((9, 40), (3, 4, 5, 6), (2, 1031)):
            yield call, layout, torch.bfloat16, shape, False
        yield call, layout, torch.bfloat16, (9, 40), True
        yield call, layout, torch.float32, (2, 1031), False
        if layout.startswith("misaligned"):
            yield call, layout, torch.float64, (3, 72), False


def is_in_few_layouts(
    call: Call, layout: str, dtype: torch.dtype, shape: Shape, alone: bool
) -> bool:
    is_one = layout in FEW_LAYOUTS and not is_covered(call)
    is_misaligned = layout == "misaligned by 1" and call == CORE_CALLS[0]
    return (is_one or is_misaligned) and dtype == torch.bfloat16 and shape == (9, 40) and not alone


@each_family(layout_cases(), every, is_in_few_layouts)
def test_layouts(backend: str, cases: list[LayoutCase]) -> None:
    check(backend, chain.from_iterable(starmap(arranged, cases)))


def arranged(
    call: Call, layout: str, dtype: torch.dtype, shape: Shape, alone: bool
) -> Iterator[tuple[Call, str, Build, object]]:
    def all_of_them(make: Make) -> Iterator[list[Tensor]]:
        return arrangements(call, LAYOUTS[layout], shape, make)

    def arrangement(i: int, make: Make) -> list[Tensor]:
        return next(islice(all_of_them(make), i, None))

    for i in range(1, len(list(all_of_them(torch.empty)))) if alone else [0]:
        name = layout, dtype, shape, i
        yield call, call.gates[0], laid_out(partial(arrangement, i), dtype), name


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tensors of any size."""
    monkeypatch.setattr(tuning, "SMALL_BYTES", 0)
    plans = tuning.map_tiles, tuning.octet_tiles, tuning.coded_tiles, tuning.draw_tiles
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


@each_family(
    product(CORE_CALLS, [torch.bfloat16, torch.float64], [(5, 1000), (3, 33)]),
    lambda call, dtype, shape: dtype == torch.bfloat16 and not is_covered(call),
    backends=TRITON_PTX,
)
def test_tiles_of_large_tensors(backend: str, cases: list[ShapeCase], large_tiles: None) -> None:
    """Several vectors, or octets, for a thread, in Triton."""
    check_shapes(backend, cases)


@pytest.mark.parametrize("backend", TRITON_PTX)
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", [(20, 512), pytest.param((9, 2048), marks=pytest.mark.slow)])
def test_octets_below_each_other(
    backend: str, dtype: torch.dtype, shape: Shape, large_tiles: None
) -> None:
    """Whole tiles of the SOI map with vectors along the columns, and one that is cut, in Triton."""
    ops, seed = torch.ops.gelu_kernels, torch.tensor(3)
    x, bias, loc, scale = (torch.randn(s).to(dtype) for s in (shape, *[shape[1:]] * 3))

    def results() -> list[Tensor]:
        biased = ops.soi_forward(x, bias, seed, "normal")
        return [*biased, *ops.soi_cdf_forward(x, loc, scale.abs(), seed, "cauchy")]

    expected = results()
    with kernels_for(backend):
        found = results()
    assert all(torch.equal(y, e) for y, e in zip(found, expected, strict=True))


# A GLU that is clamped and has no weight, which may be one long row; the sums that are the gradient
# of its weights, whose order 16 bits hide


# In Triton each is compiled anew.
FEW_CLAMPED = [*product([torch.bfloat16, torch.float32], [(3, 520), (7, 33)])]
MORE_CLAMPED = [x for x in product(DTYPES, [(40_000,), (3, 520), (7, 33)]) if x not in FEW_CLAMPED]


@pytest.mark.parametrize(
    "backend, cases",
    on_backends([(FEW_CLAMPED,), (MORE_CLAMPED,)], every, lambda cases: cases is FEW_CLAMPED),
)
def test_clamped_glu(backend: str, cases: list[tuple[torch.dtype, Shape]]) -> None:
    for dtype, shape in cases:
        tensors = [(3 * normal(*shape)).to(dtype) for _ in range(3)]
        expected = clamped_glu(*tensors)
        with kernels_for(backend) as device:
            found = clamped_glu(*(t.to(device) for t in tensors))
        for i, (result, e) in enumerate(zip(found, expected, strict=True)):
            assert bits.differing(result.cpu(), e) == 0, (dtype, shape, i)


def clamped_glu(dy: Tensor, x: Tensor, up: Tensor) -> list[Tensor]:
    numbers = "logistic_1702", 1.5, 1.0
    both, weight = torch.cat([x, up], -1), x[..., 0]
    ops = torch.ops.gelu_kernels
    return [
        ops.glu_forward(x, up, None, *numbers),
        *ops.glu_backward(dy, x, up, None, *numbers),
        *ops.glu_backward_weight(dy, x, up, weight, *numbers),
        ops.glu_halves_forward(both, None, *numbers),
        ops.glu_halves_backward(dy, both, None, *numbers),
    ]


@every_backend
def test_gradcheck_and_opcheck(backend: str) -> None:
    """The registered kernels differentiate as on the CPU, write to no input and return what the
    kernels for meta tensors say. All else that opcheck looks at is the same for all devices."""
    looked_at = "test_schema", "test_faketensor"
    with kernels_for(backend) as device:
        for op in CORE:
            call = [call for call in CORE_CALLS if call.op == op][-1]
            sample = call.sample((2, 3), lambda *s: normal(*s, device=device))

            def floating(*tensors: Tensor, sample: Sample = sample) -> tuple[Tensor, ...]:
                return tuple(t for t in sample.ours(*tensors) if t.is_floating_point())

            if op.name != "coded_forward":  # its derivative is a code, not the slope of its values
                assert gradcheck(floating, sample.leaves(), fast_mode=True), op.name
            arguments, _ = call.arguments(*sample.tensors)
            torch.library.opcheck(op.overload, arguments, test_utils=looked_at)


# The place of a part in a whole tensor, which says what random bits it has.
FEW_PLACES = [
    (2**40 + 8,),
    (2**35 - 400,),  # the counter's high word begins to count
    (0, 1000, 3000),  # as many columns as x has
    (8, 512, 1024),
]
MORE_PLACES = [
    *((1,), (2,), (3,), (4,), (4 * 7919,), (3, 100, 1001), (5, 17, 100), (0, 1, 7), (11, 5, 0)),
    *((2**35 - 30, 256, 300), (2, 10_000_000, 3)),
]
Place = tuple[int, ...]
on_places = pytest.mark.parametrize(
    "backend, places",
    on_backends([(FEW_PLACES,), (MORE_PLACES,)], every, lambda places: places is FEW_PLACES),
)


@on_places
def test_places(backend: str, places: list[Place]) -> None:
    """tests/families/test_soi_cdf.py has them with a location and a scale."""
    for place, dtype in product(places, (torch.bfloat16, torch.float64)):
        x, bias = normal(5, 1001, dtype=dtype), normal(1000, dtype=dtype)
        for columns, b in product((slice(1000), slice(1, 1001)), (None, bias)):
            check_place(backend, "soi_forward", (), x, columns, b, place)


@on_places
def test_places_of_dropout(backend: str, places: list[Place]) -> None:
    x, bias = normal(5, 1000, dtype=torch.bfloat16), normal(1000, dtype=torch.bfloat16)
    for place in places:
        check_place(backend, "gate_dropout_forward", (0.3,), x, slice(None), bias, place)
        check_place(backend, "coded_forward", (8, 0.3, True), x, slice(None), bias, place)


def check_place(
    backend: str,
    op: str,
    options: tuple[object, ...],
    x: Tensor,
    columns: slice,
    bias: Tensor | None,
    place: Place,
) -> None:
    def results(device: str) -> tuple[Tensor, Tensor]:
        b, seed = (t if t is None else t.to(device) for t in (bias, torch.tensor(SEED)))
        function = getattr(torch.ops.gelu_kernels, op)
        return function(x.to(device)[:, columns], b, seed, "normal", *options, *place)

    expected = results("cpu")
    with kernels_for(backend) as device:
        found = results(device)
    for result, e in zip(found, expected, strict=True):
        assert bits.differing(result.cpu(), e) == 0, (op, place, x.dtype, columns, bias is None)
