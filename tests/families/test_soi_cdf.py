"""The SOI map with a location and a scale: its masks, their probabilities, special values.

soi_oracle.py says which elements are kept.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from tests import bits
from tests.backends.same_bits import every, on_backends
from tests.calls import DTYPES, GATES, SEED, normal, positive
from tests.cases import each
from tests.devices import kernels_for
from tests.oracles import oracle, soi_oracle

ops = torch.ops.gelu_kernels

Results = tuple[Tensor, ...]


def forward(
    x: Tensor, loc: Tensor, scale: Tensor, gate: str = "normal", *index: int, seed: int = SEED
) -> Results:
    return ops.soi_cdf_forward(x, loc, scale, torch.tensor(seed, device=x.device), gate, *index)


def expected(x: Tensor, loc: Tensor, scale: Tensor, gate: str, *index: int) -> Results:
    return soi_oracle.expected(x, None, SEED, gate, *index, loc=loc, scale=scale)


def assert_same(results: Results, others: Results) -> None:
    for result, other in zip(results, others, strict=True):
        assert bits.differing(result.cpu(), other.cpu()) == 0


def parameters(mix: str, columns: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """loc and scale, numbers or vectors."""
    shapes = [(columns,) if name in mix else () for name in ("loc", "scale")]
    loc, scale = (normal(*shape, dtype=dtype, device=device) for shape in shapes)
    return [loc, positive(scale)]


BOTH_ALIKE = ["numbers", "vectors loc and scale"]
ONE_VECTOR = ["vector loc", "vector scale"]
MIXES = BOTH_ALIKE + ONE_VECTOR
PLACES = [(), (1,), (4,), (2**35 - 100,), (5, 17, 100), (0, 1, 7)]


@each(mix=MIXES, dtype=DTYPES, gate=GATES)
def test_the_scheme(mix: str, dtype: torch.dtype, gate: str, device: str) -> None:
    for shape in ((7, 1032), (300, 33), (5000,)):
        x = (3 * normal(*shape)).to(device, dtype)
        own = parameters(mix, shape[-1], dtype, device)
        assert_same(forward(x, *own, gate), expected(x, *own, gate))


@each(mix=MIXES, index=PLACES)
def test_places(mix: str, index: tuple[int, ...], device: str) -> None:
    x = normal(5, 340, dtype=torch.float32, device=device)
    own = parameters(mix, 340, torch.float32, device)
    assert_same(forward(x, *own, "normal", *index), expected(x, *own, "normal", *index))


@pytest.mark.parametrize(
    "backend, mixes", on_backends([(BOTH_ALIKE,), (ONE_VECTOR,)], every, BOTH_ALIKE.__eq__)
)
def test_bits_of_mixes(backend: str, mixes: list[str]) -> None:
    """Aligned and misaligned rows, rows of no whole octets and of several tiles, and parts of a
    whole."""
    dtypes = [torch.bfloat16] if "triton" in backend else [torch.bfloat16, torch.float64]
    for mix, dtype, columns, index, start in product(
        mixes, dtypes, (5, 2056), ((), (3,), (8, 512, 1024)), (0, 1)
    ):
        x = normal(20, columns + 1, dtype=dtype)
        loc, scale = parameters(mix, columns + 1, dtype, "cpu")
        x[0] = loc
        if scale.dim():
            scale[::3] = 0
        tensors = [x, loc, scale]

        def results(device: str, tensors=tensors, index=index, start=start) -> Results:
            there = [t.to(device, copy=True) for t in tensors]
            end = tensors[0].size(1) - 1 + start
            x, *own = [t[..., start:end] if t.dim() else t for t in there]
            return forward(x if start else x.contiguous(), *own, "normal", *index)

        on_cpu = results("cpu")
        with kernels_for(backend) as device:
            assert_same(results(device), on_cpu)


@each(dtype=DTYPES, gate=GATES)
def test_zero_and_one_are_the_map_itself(dtype: torch.dtype, gate: str, device: str) -> None:
    x = (3 * normal(9, 40)).to(device, dtype)
    zero, one = (torch.full((), n, dtype=dtype, device=device) for n in (0, 1))
    seed = torch.tensor(SEED, device=device)
    assert_same(forward(x, zero, one, gate), ops.soi_forward(x, None, seed, gate))


DRAWS = 2**22


@each(z=[-4.0, -1.5, -0.25, 0.0, 0.25, 1.5], gate=GATES)
def test_frequencies(z: float, gate: str) -> None:
    loc, scale = torch.tensor(-0.75), torch.tensor(2.5)
    x = (loc + z * scale).expand(DRAWS)
    mask = forward(x, loc, scale, gate, seed=1)[1]
    frequency = int(soi_oracle.unpack(mask, DRAWS).sum(dtype=np.int64)) / DRAWS
    p = float(oracle.exact(gate, oracle.VALUE, z) / z) if z else 0.5
    assert abs(frequency - p) < 4 * math.sqrt(p * (1 - p) / DRAWS) + 2e-6


@each(dtype=DTYPES, gate=GATES)
def test_scale_of_zero(dtype: torch.dtype, gate: str, device: str) -> None:
    """A step; at x = loc half of the elements are kept."""
    largest = torch.finfo(dtype).max
    row = torch.tensor([-largest, 0.5, 0.75, 1, largest], dtype=dtype, device=device)
    x, loc = row.expand(1000, 5), row[2]
    for zero in (0.0, -0.0, torch.finfo(torch.float32).tiny / 4 if dtype == torch.float32 else 0.0):
        scale = torch.full((), zero, dtype=dtype, device=device)
        for shape in ((), (5,)):
            own = [t.expand(shape).contiguous() for t in (loc, scale)]
            y, mask = forward(x, *own, gate)
            assert not y[:, :2].any() and torch.equal(y[:, 3:], x[:, 3:])
            assert 400 < int((y[:, 2] != 0).sum()) < 600
            assert_same((y, mask), expected(x, *own, gate))


@each(dtype=DTYPES, gate=GATES)
def test_special_values(dtype: torch.dtype, gate: str, device: str) -> None:
    """inf and NaN are kept, -inf is dropped; so are values that overflow the dtype or float32."""
    inf, nan, largest = math.inf, math.nan, torch.finfo(dtype).max
    tiny = torch.finfo(dtype).tiny
    xs = [inf, -inf, nan, 0.0, -0.0, largest, -largest, 1.0, -1.0, tiny, 3 * tiny]
    locs = [0.0, inf, -inf, nan, largest, -largest, 1.0, tiny]
    scales = [0.0, tiny, 1.0, 3.0, largest, inf]
    every = torch.tensor(list(product(xs, locs, scales)), dtype=dtype, device=device)
    x, loc, scale = every.t().contiguous()
    y, mask = forward(x, loc, scale, gate)
    assert_same((y, mask), expected(x, loc, scale, gate))
    finite = loc.isfinite()
    assert (y[(x == inf) & finite] == inf).all() and (y[(x == -inf) & finite] == 0).all()
    assert y[x.isnan()].isnan().all()


@each(mix=MIXES)
def test_no_gradient_goes_through_the_mask(mix: str, device: str) -> None:
    x, dy = (normal(4, 6, device=device) for _ in range(2))
    leaves = [t.requires_grad_() for t in (x, *parameters(mix, 6, torch.float64, device))]
    y, mask = forward(*leaves)
    assert y.requires_grad and not mask.requires_grad
    dx, dloc, dscale = torch.autograd.grad(y, leaves, dy, retain_graph=True)
    m = soi_oracle.kept(x, None, SEED, "normal", loc=leaves[1], scale=leaves[2])
    assert torch.equal(dx, soi_oracle.select(m, dy))
    for gradient, leaf in zip((dloc, dscale), leaves[1:], strict=True):
        assert gradient.shape == leaf.shape and not gradient.any()
    (alone,) = torch.autograd.grad(y, leaves[1], dy)
    assert alone.shape == leaves[1].shape and not alone.any()


def drawn(*arguments: object, **options: object) -> Tensor:
    torch.manual_seed(SEED)
    return functional.soi_map(*arguments, **options)


def test_numbers_and_defaults(device: str) -> None:
    x = normal(40, 30, device=device)
    zero, half, two = (torch.tensor(n, device=device).double() for n in (0, 0.5, 2))
    one = torch.ones((), dtype=torch.float64, device=device)
    assert torch.equal(drawn(x, loc=0.5, scale=2), drawn(x, loc=half, scale=two))
    assert torch.equal(drawn(x, loc=0.5), drawn(x, loc=half, scale=one))
    assert torch.equal(drawn(x, scale=2), drawn(x, loc=zero, scale=two))
    torch.manual_seed(SEED)
    through_torch = ops.soi_map(x, scale=two)
    assert torch.equal(through_torch, drawn(x, scale=2))
    assert not torch.equal(drawn(x, scale=2), drawn(x))

    compile_ = torch.compile(backend="aot_eager", fullgraph=True)
    torch.manual_seed(SEED)
    compiled = compile_(lambda x: functional.soi_map(x, loc=0.5, scale=2))(x)
    assert torch.equal(compiled, drawn(x, loc=0.5, scale=2))
    for scale in (-1, math.nan):
        with pytest.raises(ValueError, match=r"^soi_map\(\): scale must be at least 0, got"):
            functional.soi_map(x, scale=scale)
