"""torch.vmap of every operator and its gradients, over any of its tensors along any dimension.

Each example of the batch is compared with the reference of its own slices.
"""

from itertools import product

import torch
from torch import Tensor
from torch.func import grad, jacfwd, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from gelu_kernels.operators.types import Extent
from tests.calls import CALLS, Call, Results, Sample, normal
from tests.cases import each

close = {"rtol": 1e-10, "atol": 1e-12}
SHAPE, BATCH = (3, 4), 5
Dims = tuple[int | None, ...]


def choices(call: Call) -> list[Dims]:
    """Batches of one tensor, of all but one, and of all along the first or the last dimension."""
    n = len(call.tensors)
    found = [*(tuple(0 if i == j else None for j in range(n)) for i in range(n))]
    found += [tuple(None if i == j else 0 for j in range(n)) for i in range(n) if n > 2]
    found += [(0,) * n, (-1,) * n, tuple(i % 2 if i < n - 1 else 0 for i in range(n))]
    # A batch of numbers has one dimension.
    numbers = [extent is Extent.NUMBER for extent in call.tensors.values()]
    found = [
        tuple(d and (0 if one else d) for d, one in zip(dims, numbers, strict=True))
        for dims in found
    ]
    return list(dict.fromkeys(found))


def batched(call: Call, dims: Dims, batch: int, device: str) -> list[Tensor]:
    def make(*shape: int) -> Tensor:
        return normal(*shape, device=device)

    singles = [call.inputs(SHAPE, make) for _ in range(max(batch, 1))]
    found = []
    for dim, column in zip(dims, zip(*singles, strict=True), strict=True):
        stacked = torch.stack(column) if column[0].is_floating_point() else distinct(column)
        stacked = stacked[:batch]
        found.append(column[0] if dim is None else stacked.movedim(0, min(dim, column[0].dim())))
    return found


def distinct(column: tuple[Tensor, ...]) -> Tensor:
    """Seeds, or masks, no two of them the same."""
    t = torch.stack(column)
    return t + torch.arange(len(t), device=t.device) if t.dim() == 1 else t


def slices(call: Call, tensors: list[Tensor], dims: Dims, i: int) -> Sample:
    one = [t if d is None else t.select(d, i) for t, d in zip(tensors, dims, strict=True)]
    return Sample(call, call.gates[0], one)


@each(mapped=[(call, dims) for call in CALLS for dims in choices(call)], batch=[BATCH, 0])
def test_vmap(mapped: tuple[Call, Dims], batch: int, device: str) -> None:
    call, dims = mapped
    if batch == 0 and Extent.NUMBER in call.tensors.values():
        return  # PyTorch's arithmetic takes no empty batch of numbers
    tensors = batched(call, dims, batch, device)
    given = Sample(call, call.gates[0], tensors)
    results = vmap(given.ours_of_all, dims, randomness="same")(*tensors)
    for name, result in zip(call.op.outputs, results, strict=True):
        assert result.size(0) == batch, name
    for i in range(batch):
        ours = tuple(result[i] for result in results)
        torch.testing.assert_close(ours, slices(call, tensors, dims, i).expected(), **close)


class Calls(TorchDispatchMode):
    """Counts the core operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.namespace == "gelu_kernels"
        return function(*args, **(kwargs or {}))


# In a mask or a code, every example of the batch has bytes of its own.
WITHOUT_BYTES = [c for c in CALLS if c.op.family not in ("soi", "dropout", "coded")]


@each(call=WITHOUT_BYTES)
def test_a_batch_is_one_call(call: Call, device: str) -> None:
    """Through the Python function and through torch.ops."""
    for route in (call.function(), call.operator()):
        for dims in choices(call):
            counts = []
            for batch in (1, BATCH):
                tensors = batched(call, dims, batch, device)
                with Calls() as calls:
                    vmap(route, dims, randomness="same")(*tensors)
                counts.append(calls.count)
            # A batch of locations or scales is a composition of PyTorch's operators.
            least = 0 if call.op.family == "cdf" else 1
            assert least <= counts[0] == counts[1] <= 2


def derivatives(f, sample: Sample) -> Results:
    """By both modes, with respect to the first floating tensor."""
    place = list(sample.call.tensors).index(sample.call.floating[0])

    def total(*tensors: Tensor) -> Tensor:
        return sum((t**2).sum() for t in f(*tensors) if t.is_floating_point())

    return lambda *tensors: (
        grad(total, place)(*tensors),
        jacfwd(total, place, randomness="same")(*tensors),
    )


@each(call=CALLS)
def test_vmap_of_gradients(call: Call, device: str) -> None:
    """Gradients per example, as differentially private training takes them."""
    for dims in choices(call):
        tensors = batched(call, dims, BATCH, device)
        sample = Sample(call, call.gates[0], tensors)
        results = vmap(derivatives(sample.ours_of_all, sample), dims, randomness="same")(*tensors)
        for i in range(BATCH):
            one = slices(call, tensors, dims, i)
            leaf = one.floating[0].detach().clone().requires_grad_()
            terms = one.expected(leaf, *one.floating[1:])
            total = sum((t**2).sum() for t in terms if t.is_floating_point())
            (expected,) = torch.autograd.grad(total, leaf)
            for result in results:
                torch.testing.assert_close(result[i], expected, **close)


@each(call=CALLS)
def test_nested_vmap(call: Call, device: str) -> None:
    """The first tensor along the outer dimension, the others along the inner; a lone one, both."""
    n = len(call.tensors)
    outer: Dims = (0, *[None] * (n - 1))
    inner: Dims = (None if n > 1 else 0, *[0] * (n - 1))
    twice = (batched(call, inner, BATCH, device) for _ in range(2))
    tensors = [torch.stack(pair) if d == 0 else pair[0] for d, pair in
               zip(outer, zip(*twice, strict=True), strict=True)]  # fmt: skip
    sample = Sample(call, call.gates[0], tensors)
    f = vmap(sample.ours_of_all, inner, randomness="same")
    results = vmap(f, outer, randomness="same")(*tensors)
    for i, j in product(range(2), range(BATCH)):
        one = [t if d is None else t.select(d, i) for t, d in zip(tensors, outer, strict=True)]
        one = [t if d is None else t.select(d, j) for t, d in zip(one, inner, strict=True)]
        expected = Sample(call, call.gates[0], one).expected()
        torch.testing.assert_close(tuple(r[i, j] for r in results), expected, **close)
