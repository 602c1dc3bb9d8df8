"""The gated linear unit, g(gate) up, of two tensors and of the halves of one: values, gradients,
layouts, and all that PyTorch does with an operator.

The reference is the product of float64 formulas. A result is also compared, bit by bit, with that
on contiguous clones.
"""

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product

import bits
import cuda_on_cpu
import numpy as np
import oracle
import pytest
import torch
from conftest import DEVICES
from cuda_on_cpu import Error
from oracle import DERIVATIVE, VALUE
from test_layout import COPIES, profiled
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, nn, reference

ops = torch.ops.gelu_kernels

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
HALF = [torch.float16, torch.bfloat16]
GATES = {"none": "normal", "tanh": "normal_tanh", "sigmoid": "logistic_1702"}
APPROXIMATE = {gate: approximate for approximate, gate in GATES.items()}
close = {"rtol": 1e-10, "atol": 1e-12}  # float64
single_close = {"rtol": 2e-6, "atol": 2e-6}

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
# vmap of an operator without a batching rule is a loop, with this warning.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def glu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """The reference."""
    return reference.gates[approximate](gate.double()) * up.double()


def packed_glu(x: Tensor, approximate: str = "none") -> Tensor:
    return glu(*x.chunk(2, -1), approximate)


def exact(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> list[Tensor]:
    """y, dx and dup in float64."""
    leaves = [t.detach().double().clone().requires_grad_() for t in (x, up)]
    y = glu(*leaves, APPROXIMATE[gate])
    return [y.detach(), *torch.autograd.grad(y, leaves, dy.double())]


def run(dy: Tensor, x: Tensor, up: Tensor, gate: str) -> list[Tensor]:
    return [ops.glu_forward(x, up, gate), *ops.glu_backward(dy, x, up, gate)]


def run_packed(dy: Tensor, x: Tensor, gate: str) -> list[Tensor]:
    return [ops.glu_halves_forward(x, gate), ops.glu_halves_backward(dy, x, gate)]


# Accuracy


def assert_accurate(result: Tensor, factor: np.ndarray, of_gate: np.ndarray, eps: float) -> None:
    """In 16 bits 0.6 ULP, else so many eps, where what the gate gives and the product are normal
    numbers. In 16 bits everywhere: no worse than with a rounding in between."""
    expected = factor * of_gate
    info = torch.finfo(result.dtype)
    finite = (np.abs(factor) <= torch.finfo(torch.float32).max) & (np.abs(expected) <= info.max)
    normal = finite & (np.abs(factor) >= torch.finfo(torch.float32).tiny)
    normal &= (np.abs(of_gate) >= info.tiny) & (np.abs(expected) >= info.tiny)
    assert normal.sum() > normal.size / 8
    errors = np.abs(result.double().numpy() - expected)
    if result.dtype in HALF:
        units = oracle.ulp(expected, result.dtype)
        assert (errors < 0.6 * units)[normal].all()
        rounded = np.abs(factor) * oracle.ulp(of_gate, result.dtype)
        assert (errors <= rounded + units)[finite].all()
    else:
        assert (errors < eps * info.eps * np.abs(expected))[normal].all()


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_accuracy(gate: str, dtype: torch.dtype, device: str) -> None:
    """In 16 bits for every x."""
    if dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        x = x[x.isfinite()]
    else:
        x = torch.cat([random(20_000) * scale for scale in (0.1, 1, 3, 10)]).to(dtype)
    numbers = x.double().numpy()
    value, derivative = (oracle.reference(gate, order, numbers) for order in (VALUE, DERIVATIVE))
    for scale in (None, 1, 1e-2):
        up, dy = (
            torch.ones_like(x) if scale is None else (random(len(x)) * scale).to(dtype)
            for _ in range(2)
        )
        u, d = up.double().numpy(), dy.double().numpy()
        y, dx, dup = (t.cpu() for t in run(dy.to(device), x.to(device), up.to(device), gate))
        assert_accurate(y, u, value, 4.5)
        assert_accurate(dx, d * u, derivative, 5)
        assert_accurate(dup, d, value, 4.5)


def test_float64(gate: str, device: str) -> None:
    """The reference is good to a few units itself."""
    x, up, dy = torch.linspace(-6, 6, 999).double().to(device), *random(2, 999).to(device)
    for ours, expected in zip(run(dy, x, up, gate), exact(dy, x, up, gate), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-15)


@every_dtype
def test_special_values(gate: str, dtype: torch.dtype, device: str) -> None:
    """inf * 0 is NaN, as in the formulas, and a zero has its sign; but g'(-inf) may be -0. Left
    out is g(-inf) in 16 bits: it is no zero before it is rounded, and it is not.
    """
    numbers = torch.tensor([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan], dtype=dtype)
    dy, x, up = (t.flatten().to(device) for t in torch.meshgrid(*[numbers] * 3, indexing="ij"))
    if dtype in HALF:
        dy, x, up = (t[x != -math.inf] for t in (dy, x, up))
    one = torch.ones_like(x)
    value, derivative, _ = exact(one, x, one, gate)
    exactly = [value * up.double(), dy.double() * up.double() * derivative, dy.double() * value]
    y, dx, dup = run(dy, x, up, gate)
    for ours, expected in zip((y, dx, dup), exactly, strict=True):
        assert torch.equal(ours.isnan(), expected.isnan())
        signed = ~expected.isnan() & ~((x == -math.inf) & (ours is dx))
        assert torch.equal(ours.signbit()[signed], expected.signbit()[signed])
        for special in (0, math.inf, -math.inf):
            assert torch.equal(ours == special, expected == special)


# Layouts. Triton's interpreter takes a second for each of these tests; test_triton_interpreter.py
# compares its bits with the CPU's, over such layouts and sizes.

compiled = pytest.mark.parametrize(
    "device", [name for name in DEVICES if name != "triton_interpreter"], indirect=True
)
SIZES = [1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 255, 256, 257, 1000]


def check(dy: Tensor, x: Tensor, up: Tensor, gate: str = "normal") -> None:
    inputs = [dy, x, up]
    before = [t.clone() for t in inputs]
    results = run(*inputs, gate)
    for result, like in zip(results, (x, x, up), strict=True):
        assert result.stride() == torch.empty_like(like).stride()
    check_results(results, exact(*inputs, gate), run(*(t.contiguous() for t in inputs), gate))
    check_inputs(results, inputs, before)


def check_packed(dy: Tensor, x: Tensor, gate: str = "normal") -> None:
    inputs = [dy, x]
    before = [t.clone() for t in inputs]
    results = run_packed(*inputs, gate)
    assert results[0].is_contiguous()
    assert results[1].stride() == torch.empty_like(x).stride()
    y, *halves = exact(dy, *x.chunk(2, -1), gate)
    plain = run_packed(*(t.contiguous() for t in inputs), gate)
    check_results(results, [y, torch.cat(halves, -1)], plain)
    check_inputs(results, inputs, before)


def check_results(results: list[Tensor], expected: list[Tensor], plain: list[Tensor]) -> None:
    for result, e, p in zip(results, expected, plain, strict=True):
        tolerance = {8: 1e-13, 4: 2e-6, 2: torch.finfo(result.dtype).eps}[result.itemsize]
        torch.testing.assert_close(result.double(), e, rtol=tolerance, atol=tolerance)
        assert bits.same(result, p)


def check_inputs(results: list[Tensor], inputs: list[Tensor], before: list[Tensor]) -> None:
    """They are what they were, and no result lies in them or in another."""
    for t, b in zip(inputs, before, strict=True):
        assert bits.same(t, b)
    storages = {t.untyped_storage().data_ptr() for t in inputs}
    for result in results:
        if result.numel():
            assert result.untyped_storage().data_ptr() not in storages
            storages.add(result.untyped_storage().data_ptr())


@compiled
@every_dtype
@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: int, dtype: torch.dtype, device: str) -> None:
    for shape in ((size,), (3, size)):
        check(*(random(*shape, dtype=dtype).to(device) for _ in range(3)))
        wide = random(*shape[:-1], 2 * size, dtype=dtype).to(device)
        dy = random(*shape, dtype=dtype).to(device)
        check_packed(dy, wide)
        check(dy, *wide.chunk(2, -1))


@pytest.mark.parametrize("shape", [(0,), (0, 6), (6, 0), (2, 0, 4), (0, 0)], ids=str)
def test_empty(shape: tuple[int, ...], device: str) -> None:
    x = torch.empty(shape, device=device)
    check(x, x, x)
    check_packed(x.chunk(2, -1)[0], x)


def test_scalars(device: str) -> None:
    check(*(random().to(device) for _ in range(3)))


@compiled
@every_dtype
@pytest.mark.parametrize("offset", [1, 3])
def test_misaligned(offset: int, dtype: torch.dtype, device: str) -> None:
    storage = random(4, 608, dtype=dtype).to(device)
    dy, x, up = (t[offset : offset + 600] for t in storage[:3])
    check(dy, x, up)
    check(dy.clone(), x.clone(), up)
    check_packed(dy[:300], x)
    check_packed(dy.view(2, 300)[:, :290], storage[2:, offset : offset + 580])


Make = Callable[..., Tensor]
# dy, x and up. Of x, dy is the packed one's gradient where the last dimension is even.
LAYOUTS: dict[str, Callable[[Make], tuple[Tensor, Tensor, Tensor]]] = {
    "contiguous": lambda r: (r(70, 300), r(70, 300), r(70, 300)),
    "halves": lambda r: (r(70, 300), *r(70, 600).chunk(2, -1)),
    "halves the other way": lambda r: (r(70, 300), *r(70, 600).chunk(2, -1)[::-1]),
    "ragged halves": lambda r: (r(70, 301), *r(70, 602).chunk(2, -1)),
    "narrow halves": lambda r: (r(700, 6), *r(700, 12).chunk(2, -1)),
    "halves of three dimensions": lambda r: (r(3, 5, 128), *r(3, 5, 256).chunk(2, -1)),
    "all the same": lambda r: (r(70, 300),) * 3,
    "x transposed": lambda r: (r(70, 40), r(40, 70).t(), r(70, 40)),
    "up transposed": lambda r: (r(70, 40), r(70, 40), r(40, 70).t()),
    "all transposed": lambda r: tuple(r(40, 70).t() for _ in range(3)),
    "dy is one number": lambda r: (r().expand(70, 300), r(70, 300), r(70, 300)),
    "dy is one row": lambda r: (r(300).expand(70, 300), r(70, 300), r(70, 300)),
    "dy is one column": lambda r: (r(70, 1).expand(70, 300), r(70, 300), r(70, 300)),
    "up is one row": lambda r: (r(70, 300), r(70, 300), r(300).expand(70, 300)),
    "columns apart": lambda r: (r(70, 80), r(70, 160)[:, ::2], r(70, 240)[:, 1::3]),
    "rows apart": lambda r: (r(70, 300), r(140, 300)[::2], r(70, 320)[:, :300]),
    "permuted": lambda r: (
        r(7, 5, 8, 6),
        r(5, 6, 7, 8).permute(2, 0, 3, 1),
        r(6, 8, 5, 7).permute(3, 2, 1, 0),
    ),
    "channels_last": lambda r: tuple(
        r(2, 3, 8, 10).contiguous(memory_format=torch.channels_last) for _ in range(3)
    ),
    "x channels_last": lambda r: (
        r(2, 3, 8, 10),
        r(2, 3, 8, 10).contiguous(memory_format=torch.channels_last),
        r(2, 3, 8, 10),
    ),
}


@compiled
@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, dtype: torch.dtype, device: str) -> None:
    dy, x, up = LAYOUTS[layout](lambda *shape: random(*shape, dtype=dtype).to(device))
    check(dy, x, up)
    if x.size(-1) % 2 == 0:
        for t in (x, up):
            check_packed(dy[..., : x.size(-1) // 2], t)
            check_packed(dy.chunk(2, -1)[1].clone(), t)


def test_negative_views(device: str) -> None:
    x = torch.complex(torch.randn(50, 34), torch.randn(50, 34)).to(device).conj().imag
    assert x.is_neg()
    expected = glu(x.clone(), x.clone())
    torch.testing.assert_close(functional.geglu(x, x).double(), expected, **single_close)
    torch.testing.assert_close(functional.geglu(x).double(), packed_glu(x.clone()), **single_close)


@pytest.mark.parametrize("layout", ["apart", "halves", "packed", "one half alone"])
def test_nothing_is_copied(layout: str) -> None:
    """Backward allocates the gradients; an expanded one that comes in is not materialised."""
    x, up = torch.randn(512, 256), torch.randn(512, 256)
    size = x.nbytes
    if layout != "apart":
        wide = torch.randn(512, 512)
        x, up = wide.chunk(2, -1)
    if layout == "packed":
        inputs, f = [wide], functional.geglu
    else:
        inputs, f = [x, up], functional.geglu
    wanted = [t.requires_grad_() for t in inputs][layout == "one half alone" :]
    y = f(*inputs)
    names, allocated = profiled(lambda: f(*inputs))
    assert not names & COPIES
    assert size <= allocated < 1.01 * size
    dy = torch.ones(()).expand_as(y)
    names, allocated = profiled(lambda: torch.autograd.grad(y, wanted, dy))
    assert not names & {*COPIES, "aten::cat"}
    results = 1 if layout == "one half alone" else 2
    assert results * size <= allocated < 1.01 * results * size


# The same bits everywhere


@every_dtype
def test_the_bits_of_the_cpu(gate: str, dtype: torch.dtype) -> None:
    """In CUDA, whatever errors a GPU's special function unit makes."""
    x = bits.any_numbers(dtype)[:64] if dtype in HALF else 3 * random(64, 512, dtype=dtype)
    up, dy = (random(64, 512, dtype=dtype) for _ in range(2))
    expected = run(dy, x, up, gate) + run_packed(dy[:, :256], x, gate)
    for errors in product([Error.UP, Error.DOWN, Error.RANDOM], repeat=2):
        before = cuda_on_cpu.launches()
        with cuda_on_cpu.special_function_unit(*errors), cuda_on_cpu.enabled():
            results = run(dy, x, up, gate) + run_packed(dy[:, :256], x, gate)
        assert cuda_on_cpu.launches() == before + 4
        for result, e in zip(results, expected, strict=True):
            assert bits.differing(result, e) == 0


@every_dtype
def test_determinism(dtype: torch.dtype) -> None:
    """The same bits for any number of threads."""
    dy, x = random(700, 129, dtype=dtype), random(700, 258, dtype=dtype)
    inputs = dy, *x.chunk(2, -1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = run(*inputs, "normal") + run_packed(dy, x, "normal")
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results = run(*inputs, "normal") + run_packed(dy, x, "normal")
            for result, e in zip(results, expected, strict=True):
                assert bits.same(result, e)
    finally:
        torch.set_num_threads(threads)


# Derivatives, in float64

Function = Callable[..., Tensor]


class Case:
    """A public operator, the reference, and inputs for both."""

    def __init__(self, approximate: str, packed: bool, device: str) -> None:
        points = [[-8.0, -5.0, -1.3], [-0.76, -0.75, -1e-3], [0.3, 0.9, 4.5]]
        x = torch.tensor(points, dtype=torch.float64, device=device)
        up = weights(x) - 0.8
        self.ours: Function = lambda *t: functional.geglu(*t, approximate=approximate)
        self.reference: Function = lambda *t: glu(*t, approximate)
        self.inputs = (x, up)
        if packed:
            self.ours = lambda t: functional.geglu(t, approximate=approximate)
            self.reference = lambda t: packed_glu(t, approximate)
            self.inputs = (torch.cat([x, up], -1),)

    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(t.clone().requires_grad_() for t in self.inputs)


def weights(like: Tensor) -> Tensor:
    count = torch.linspace(0.5, 1.5, like.numel(), dtype=like.dtype, device=like.device)
    return count.view_as(like)


def weighted(f: Function) -> Function:
    def loss(*inputs: Tensor) -> Tensor:
        y = f(*inputs)
        return (y * weights(y)).sum()

    return loss


def assert_close(ours: object, expected: object) -> None:
    torch.testing.assert_close(ours, expected, **close)


@pytest.fixture(
    params=list(product(GATES, [False, True])),
    ids=lambda p: f"{p[0]}-{'packed' if p[1] else 'two'}",
)
def case(request: pytest.FixtureRequest, device: str) -> Case:
    return Case(*request.param, device)


def test_gradcheck(case: Case, fast_mode: bool) -> None:
    assert gradcheck(
        case.ours,
        case.leaves(),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=fast_mode,
    )


def test_gradgradcheck(case: Case, fast_mode: bool) -> None:
    assert gradgradcheck(
        case.ours,
        case.leaves(),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
        fast_mode=fast_mode,
    )


@pytest.mark.parametrize("packed", [False, True], ids=["two", "packed"])
def test_gradcheck_of_the_gradients(gate: str, packed: bool, device: str, fast_mode: bool) -> None:
    inputs = Case("none", packed, device).inputs
    leaves = [
        t.clone().requires_grad_() for t in (weights(inputs[0].chunk(1 + packed, -1)[0]), *inputs)
    ]
    op = ops.glu_halves_backward if packed else ops.glu_backward
    assert gradcheck(
        lambda *t: op(*t, gate),
        leaves,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=fast_mode,
    )


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives(case: Case, order: int) -> None:
    def derivative(f: Function) -> tuple[Tensor, ...]:
        inputs = case.leaves()
        terms = (f(*inputs),)
        for _ in range(order):
            total = sum((t * weights(t)).sum() for t in terms)
            terms = torch.autograd.grad(total, inputs, create_graph=True)
        return terms

    assert_close(derivative(case.ours), derivative(case.reference))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, n: grad(weighted(f), argnums=n),
        lambda f, n: hessian(weighted(f), argnums=n),
        lambda f, n: jacrev(f, argnums=n),
        lambda f, n: jacfwd(f, argnums=n),
        lambda f, n: jacfwd(jacfwd(f)),
        lambda f, n: vmap(grad(weighted(f), argnums=n)),
    ],
    ids=["grad", "hessian", "jacrev", "jacfwd", "forward over forward", "examples"],
)
def test_function_transforms(case: Case, transform: Callable) -> None:
    argnums = tuple(range(len(case.inputs)))
    ours, expected = (transform(f, argnums)(*case.inputs) for f in (case.ours, case.reference))
    assert_close(ours, expected)


@pytest.mark.parametrize("wanted", [0, 1], ids=["gate", "up"])
@pytest.mark.parametrize("approximate", GATES)
def test_one_input_alone(approximate: str, wanted: int, device: str) -> None:
    case = Case(approximate, False, device)

    def derivatives(f: Function) -> list[Tensor]:
        inputs = [t.clone() for t in case.inputs]
        leaf, found = inputs[wanted].requires_grad_(), []
        t = f(*inputs)
        for _ in range(2 - wanted):  # it is linear in up
            (t,) = torch.autograd.grad(weighted(lambda t: t)(t), leaf, create_graph=True)
            found.append(t)
        (backward,) = torch.autograd.grad(f(*inputs).sum(), inputs[wanted])
        with forward_ad.dual_level():
            inputs[wanted] = forward_ad.make_dual(leaf.detach(), weights(leaf))
            tangent = forward_ad.unpack_dual(f(*inputs)).tangent
        return [*found, backward, tangent]

    assert_close(derivatives(case.ours), derivatives(case.reference))
    inputs = [t.clone() for t in case.inputs]
    inputs[wanted].requires_grad_()
    case.ours(*inputs).sum().backward()
    assert inputs[1 - wanted].grad is None


@pytest.mark.parametrize(
    "in_dims, shapes",
    [
        ((0, 0), [(4, 2, 6), (4, 2, 6)]),
        ((1, 2), [(2, 4, 6), (2, 6, 4)]),
        ((0, None), [(4, 2, 6), (2, 6)]),
        ((None, -1), [(2, 6), (2, 6, 4)]),
        ((0, 0), [(0, 2, 6), (0, 2, 6)]),
    ],
)
def test_vmap(in_dims: tuple, shapes: list, device: str) -> None:
    gate, up = (random(*shape).to(device) for shape in shapes)
    for f in (lambda f: f, lambda f: grad(weighted(f), argnums=(0, 1)), jacfwd):
        ours = vmap(f(functional.geglu), in_dims)(gate, up)
        assert_close(ours, vmap(f(glu), in_dims)(gate, up))
    for t, dim in zip((gate, up), in_dims, strict=True):
        if dim is not None:
            for f in (lambda f: f, lambda f: grad(weighted(f)), lambda f: hessian(weighted(f))):
                ours = vmap(f(functional.geglu), dim)(t)
                assert_close(ours, vmap(f(packed_glu), dim)(t))


def test_nested_vmap_and_vmap_of_backward(device: str) -> None:
    gate, up, dy = random(5, 2, 6), random(4, 2, 6), random(5, 4, 2, 6)
    gate, up, dy = gate.to(device), up.to(device), dy.to(device)
    outer, inner = (0, None), (None, 0)
    ours, expected = (vmap(vmap(f, inner), outer)(gate, up) for f in (functional.geglu, glu))
    assert_close(ours, expected)

    def backward(dy: Tensor, x: Tensor, up: Tensor) -> tuple[Tensor, ...]:
        return ops.glu_backward(dy, x, up, "normal")

    def expected_backward(dy: Tensor, x: Tensor, up: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vjp(glu, x, up)[1](dy)

    dims = ((0, None, 0), (0, 0, None))
    ours, expected = (
        vmap(vmap(f, dims[0]), dims[1])(dy, gate, up) for f in (backward, expected_backward)
    )
    assert_close(ours, expected)


def test_gradients_that_overflow_in_between(device: str) -> None:
    """dy·up is not rounded to 16 bits, in a gradient that is differentiated as well."""
    numbers = torch.tensor([[-4.0], [40_000.0], [3.0]], dtype=torch.float16, device=device)
    x, up, dy = numbers.unbind()
    x.requires_grad_()
    (dx,) = torch.autograd.grad(functional.geglu(x, up), x, dy, create_graph=True)
    expected = exact(dy, x, up, "normal")[1]
    torch.testing.assert_close(dx.double(), expected, rtol=2**-11, atol=0)


def test_expanded_grad_output(case: Case) -> None:
    ours, expected = case.leaves(), case.leaves()
    case.ours(*ours).sum().backward()
    case.reference(*expected).sum().backward()
    assert_close([t.grad for t in ours], [t.grad for t in expected])


def test_saved_tensors(case: Case) -> None:
    """Backward leaves them alone, as often as it runs, and sees when another has not."""
    inputs = case.leaves()
    y = case.ours(*inputs)
    dy = weights(y)
    first = torch.autograd.grad(y, inputs, dy, retain_graph=True)
    assert_close(first, torch.autograd.grad(y, inputs, dy, retain_graph=True))
    assert_close([t.detach() for t in inputs], list(case.inputs))
    with torch.no_grad():
        inputs[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, inputs, dy)


def test_the_result_may_be_modified(case: Case) -> None:
    inputs, expected = case.leaves(), case.leaves()
    case.ours(*inputs).mul_(3).sum().backward()
    case.reference(*expected).mul(3).sum().backward()
    assert_close([t.grad for t in inputs], [t.grad for t in expected])


def test_checkpoint(case: Case) -> None:
    inputs, expected = case.leaves(), case.leaves()
    weighted(lambda *t: checkpoint(case.ours, *t, use_reentrant=False))(*inputs).backward()
    weighted(case.reference)(*expected).backward()
    assert_close([t.grad for t in inputs], [t.grad for t in expected])


# What PyTorch does with an operator


# What opcheck does to a tensor that is no leaf.
not_a_leaf = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@not_a_leaf
@every_dtype
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize(
    "op",
    ["fused_glu", "fused_glu of halves", "glu_forward", "glu_backward"]
    + ["glu_halves_forward", "glu_halves_backward"],
)
def test_opcheck(op: str, grad: bool, dtype: torch.dtype, device: str) -> None:
    packed = op in ("fused_glu of halves", "glu_halves_forward", "glu_halves_backward")
    tensors = [torch.randn(3, 8, device=device).to(dtype) for _ in range(1 if packed else 2)]
    if op.endswith("backward"):
        tensors.insert(0, torch.randn(3, 4 if packed else 8, device=device).to(dtype))
    for t in tensors:
        t.requires_grad_(grad)
    rest = ((), {"gate": "normal_tanh"}) if op.startswith("fused") else (("normal",), {})
    torch.library.opcheck(getattr(ops, op.split()[0]).default, (*tensors, *rest[0]), rest[1])


def test_opcheck_of_layouts(device: str) -> None:
    x = torch.randn(2, 3, 4, 6, device=device)
    for t in (x, x.transpose(0, 3)[..., :2], x.to(memory_format=torch.channels_last), x[..., ::3]):
        t = t.detach().requires_grad_()
        torch.library.opcheck(ops.fused_glu.default, (t, t.detach().clone()))
        torch.library.opcheck(ops.fused_glu.default, (t,))


def test_schemas() -> None:
    schemas = [str(ops.fused_glu.default._schema)]
    assert schemas == [
        'gelu_kernels::fused_glu(Tensor x, Tensor? up=None, *, str gate="normal") -> Tensor'
    ]


def everything(gate: Tensor, up: Tensor) -> Tensor:
    """Every public route, among operators that a compiler may fuse."""
    y = functional.geglu(gate * 1.5, up)
    y = ops.fused_glu(y, up - 0.5, gate="normal_tanh")
    z = functional.geglu(torch.cat([y, gate], -1), approximate="sigmoid")
    return nn.GEGLU()(torch.cat([z, y], -1)).transpose(0, 1)


def everything_reference(gate: Tensor, up: Tensor) -> Tensor:
    y = glu(gate * 1.5, up)
    y = glu(y, up - 0.5, "tanh")
    z = packed_glu(torch.cat([y, gate], -1), "sigmoid")
    return packed_glu(torch.cat([z, y], -1)).transpose(0, 1)


def loss_and_gradients(f: Function, *inputs: Tensor) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    y = f(*leaves)
    (y * weights(y)).sum().backward()
    return [y.detach().double(), *(t.grad.double() for t in leaves)]


def compare(f: Function, expected: Function, *inputs: Tensor) -> None:
    ours = loss_and_gradients(f, *inputs)
    theirs = loss_and_gradients(expected, *(t.double() for t in inputs))
    torch.testing.assert_close(ours, theirs, **single_close)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend: str, dynamic: bool, device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend=backend, dynamic=dynamic)
    for rows in (6, 9) if dynamic else (6,):
        inputs = (torch.randn(rows, 5, device=device) for _ in range(2))
        compare(compiled, everything_reference, *inputs)


def test_backward_is_one_operator(device: str) -> None:
    """In a graph that a compiler has, too."""
    inputs = [torch.randn(6, 5, device=device, requires_grad=True) for _ in range(2)]

    def gradients(gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
        total = functional.geglu(gate, up).sum()
        total = total + functional.geglu(torch.cat([gate, up], -1)).sum()
        return torch.autograd.grad(total, (gate, up))

    traced = make_fx(gradients, tracing_mode="fake")(*inputs)
    targets = [node.target for node in traced.graph.nodes]
    assert targets.count(ops.glu_backward.default) == 1
    assert targets.count(ops.glu_halves_backward.default) == 1
    assert ops.gate_backward.default not in targets
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    total = glu(*doubles).sum() + packed_glu(torch.cat(doubles, -1)).sum()
    expected = torch.autograd.grad(total, doubles)
    for ours, e in zip(traced(*inputs), expected, strict=True):
        torch.testing.assert_close(ours.double(), e, **single_close)


@not_a_leaf
def test_compiled_autograd(device: str) -> None:
    inputs = [torch.randn(6, 8, device=device) for _ in range(2)]
    torch._dynamo.reset()
    compiler = torch.compile(backend="aot_eager", fullgraph=True)
    with torch._dynamo.compiled_autograd._enable(compiler):
        for approximate in ("none", "sigmoid"):
            for f, expected, tensors in (
                (functional.geglu, glu, inputs),
                (functional.geglu, packed_glu, inputs[:1]),
            ):
                chosen = (partial(g, approximate=approximate) for g in (f, expected))
                compare(*chosen, *tensors)
        for alone in (0, 1):
            leaves = [t.clone() for t in inputs]
            leaves[alone].requires_grad_()
            functional.geglu(*leaves).sum().backward()
            doubles = [t.detach().double() for t in leaves]
            doubles[alone].requires_grad_()
            glu(*doubles).sum().backward()
            torch.testing.assert_close(
                leaves[alone].grad.double(), doubles[alone].grad, **single_close
            )


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec")
def test_export(device: str) -> None:
    inputs = tuple(torch.randn(6, 5, device=device) for _ in range(2))

    class Everything(torch.nn.Module):
        def forward(self, gate: Tensor, up: Tensor) -> Tensor:
            return everything(gate, up)

    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Everything(), inputs, dynamic_shapes=({0: rows}, {0: rows}))
    inputs = tuple(torch.randn(11, 5, device=device) for _ in range(2))
    expected = everything_reference(*(t.double() for t in inputs))
    torch.testing.assert_close(program.module()(*inputs).double(), expected, **single_close)


def test_jagged_nested_tensors(device: str) -> None:
    parts = [torch.randn(3, 4, device=device), torch.randn(5, 4, device=device)]

    def of_parts(f: Function) -> Function:
        def call(a: Tensor, b: Tensor) -> Tensor:
            return f(torch.nested.as_nested_tensor([a, b], layout=torch.jagged)).values()

        return call

    compare(
        of_parts(lambda x: functional.geglu(x, x * 2)),
        lambda *t: glu(torch.cat(t), torch.cat(t) * 2),
        *parts,
    )
    compare(of_parts(functional.geglu), lambda *t: packed_glu(torch.cat(t)), *parts)


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(compiled: bool, device: str) -> None:
    """`up` is cast to the dtype of the gate; what has one dtype is left alone."""
    torch._dynamo.reset()
    gate, up = (torch.randn(3, 8, device=device, requires_grad=True) for _ in range(2))
    low = gate.detach().bfloat16().requires_grad_()
    call = functional.geglu
    if compiled:
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        assert call(gate, up).dtype == torch.float32
        assert functional.geglu(gate).dtype == torch.float32
        y = call(low, up)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), glu(low, up), rtol=2**-6, atol=2**-6)
    y.sum().backward()
    assert low.grad.dtype == torch.bfloat16 and up.grad.dtype == torch.float32
    expected = exact(torch.ones_like(y), low, up, "normal")[1:]
    for t, e in zip((low, up), expected, strict=True):
        torch.testing.assert_close(t.grad.double(), e, rtol=2**-6, atol=2**-6)


def test_module(device: str) -> None:
    module = nn.GEGLU("tanh")
    assert repr(module) == "GEGLU(approximate='tanh')" and not module.state_dict()
    x = torch.randn(3, 5, 8, device=device)
    compare(module, lambda x: packed_glu(x, "tanh"), x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(other) == repr(module)
        assert torch.equal(other(x), module(x))


class Tagged(Tensor):
    pass


def test_a_subclass_keeps_its_type(device: str) -> None:
    plain = torch.randn(6, 8, device=device)
    x = plain.as_subclass(Tagged)
    for y, expected in (
        (functional.geglu(plain, x), glu(plain, plain)),
        (functional.geglu(x), packed_glu(plain)),
    ):
        assert type(y) is Tagged
        torch.testing.assert_close(y.as_subclass(Tensor).double(), expected, **single_close)


# Bad input: an exception that names the operator and the argument

GEGLU: dict[str, Function] = {
    "torch.ops": ops.fused_glu,
    "functional": functional.geglu,
}
OF_HALVES: dict[str, Function] = {
    "torch.ops": ops.fused_glu,
    "functional": functional.geglu,
    "nn": lambda x: nn.GEGLU()(x),
}
BAD_UP: dict[str, tuple[Callable[[], Tensor], type[Exception], str]] = {
    "wider": (lambda: torch.ones(2, 5), ValueError, r"the shape of x, \[2, 4\], got \[2, 5\]"),
    "a row": (lambda: torch.ones(4), ValueError, "the shape of x"),
    "one of a row": (lambda: torch.ones(1, 4), ValueError, "the shape of x"),
    "0-d": (lambda: torch.tensor(1.0), ValueError, "the shape of x"),
    "float64": (lambda: torch.ones(2, 4).double(), TypeError, "the dtype of x, Float, got Doub"),
    "float16": (lambda: torch.ones(2, 4).half(), TypeError, "the dtype of x"),
    "int64": (lambda: torch.ones(2, 4).long(), TypeError, "the dtype of x"),
    "sparse": (lambda: torch.ones(2, 4).to_sparse(), TypeError, "the layout of x"),
}
BAD_X: dict[str, tuple[Callable[[], Tensor], str]] = {
    "int64": (lambda: torch.ones(2, 4).long(), "must be float64"),
    "bool": (lambda: torch.ones(2, 4).bool(), "must be float64"),
    "complex": (lambda: torch.ones(2, 4, dtype=torch.complex64), "must be float64"),
    "float8": (lambda: torch.ones(2, 4).to(torch.float8_e4m3fn), "must be float64"),
    "sparse": (lambda: torch.ones(2, 4).to_sparse(), "must be a strided tensor"),
}


@pytest.mark.parametrize("route", GEGLU)
@pytest.mark.parametrize("kind", BAD_UP)
def test_up(kind: str, route: str) -> None:
    up, error, message = BAD_UP[kind]
    for gate in (torch.ones(2, 4), torch.ones(2, 4, requires_grad=True)):
        with pytest.raises(error, match=f"fused_glu: up must have {message}"):
            GEGLU[route](gate, up())


def test_up_elsewhere() -> None:
    with pytest.raises(ValueError, match="fused_glu: up must be on the device of x, cpu, got"):
        functional.geglu(torch.ones(2, 4), torch.ones(2, 4, device="meta"))


@pytest.mark.parametrize("kind", BAD_X)
def test_x(kind: str) -> None:
    x, message = BAD_X[kind]
    for f in GEGLU.values():
        with pytest.raises(TypeError, match=f"fused_glu: x {message}"):
            f(x(), x())
    for f in OF_HALVES.values():
        with pytest.raises(TypeError, match=f"fused_glu: x {message}"):
            f(x())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_halves(device: str) -> None:
    for f in OF_HALVES.values():
        with pytest.raises(ValueError, match="last dimension of x must be even, got length 7"):
            f(torch.ones(2, 7, device=device))
        with pytest.raises(ValueError, match="fused_glu: x must have a last dimension"):
            f(torch.tensor(1.0, device=device))


@pytest.mark.parametrize("approximate", ["", "None", "gelu"])
def test_unknown_approximate(approximate: str) -> None:
    x = torch.ones(2, 4)
    message = f"geglu: approximate must be one of 'none' 'tanh' 'sigmoid', got '{approximate}'"
    for up in (None, x, x.as_subclass(Tagged)):
        with pytest.raises(ValueError, match=message):
            functional.geglu(x, up, approximate=approximate)
    for up in (None, x):
        with pytest.raises(ValueError, match="fused_glu: gate must be one of 'normal' 'normal_ta"):
            ops.fused_glu(x, up, gate=approximate)


CORE = {
    "glu_forward": (ops.glu_forward, 2),
    "glu_backward": (ops.glu_backward, 3),
    "glu_halves_forward": (ops.glu_halves_forward, 1),
}


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("op", [*CORE, "glu_halves_backward"])
def test_unknown_gate(op: str, recorded: bool, device: str) -> None:
    x = torch.ones(2, 4, device=device, requires_grad=recorded)
    tensors = (x[:, :2], x) if op == "glu_halves_backward" else (x,) * CORE[op][1]
    with pytest.raises(ValueError, match="gate must be one of 'normal' 'normal_tanh' 'logistic_17"):
        getattr(ops, op)(*tensors, "none")


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize(
    "bad, error, message",
    [
        (lambda: torch.ones(4, 2), ValueError, "the shape of"),
        (lambda: torch.ones(1, 4), ValueError, "the shape of"),
        (lambda: torch.ones(2, 4).double(), TypeError, "the dtype of"),
        (lambda: torch.ones(2, 4).long(), TypeError, "the dtype of"),
    ],
)
def test_core_operators(
    bad: Callable[[], Tensor], error: type[Exception], message: str, recorded: bool, device: str
) -> None:
    x, wrong = torch.ones(2, 4, device=device, requires_grad=recorded), bad().to(device)
    for op, argument, tensors in (
        (ops.glu_forward, "up", (x, wrong)),
        (ops.glu_backward, "up", (x, x, wrong)),
        (ops.glu_backward, "dy", (wrong, x, x)),
        (ops.glu_halves_backward, "dy", (wrong, torch.cat([x, x], -1))),
    ):
        of = "a half of x" if op is ops.glu_halves_backward else "x"
        with pytest.raises(error, match=f"{op.__name__}: {argument} must have {message} {of}"):
            op(*tensors, "normal")


@pytest.mark.parametrize("bad", [None, 1.0, "x"], ids=repr)
def test_arguments_that_are_no_tensors(bad: object) -> None:
    x = torch.ones(2, 4)
    for f in GEGLU.values():
        for arguments in ((bad, x), (x, bad))[: 1 if bad is None else 2]:
            with pytest.raises((TypeError, ValueError, RuntimeError), match="glu"):
                f(*arguments)
    for f in OF_HALVES.values():
        with pytest.raises((TypeError, ValueError, RuntimeError), match="glu"):
            f(bad)


def test_errors_under_compile_vmap_and_autocast() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(functional.geglu, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="fused_glu: up must have the shape of x"):
        compiled(torch.ones(2, 4), torch.ones(2, 5))
    with pytest.raises(ValueError, match="glu_backward: up must have the shape of x"):
        vmap(lambda dy, x, up: ops.glu_backward(dy, x, up, "normal"))(
            torch.ones(4, 2, 3), torch.ones(4, 2, 3), torch.ones(4, 3)
        )
    with pytest.raises(ValueError, match="last dimension of x must be even, got length 3"):
        vmap(functional.geglu)(torch.ones(4, 3))
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TypeError, match="fused_glu: up must have the dtype of x"),
    ):
        functional.geglu(torch.ones(2, 4), torch.ones(2, 4).int())
