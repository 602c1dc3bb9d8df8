"""Thousands of random calls: Hypothesis draws operator, gate, dtype, shape, layouts, numbers and
mode, and the results are compared with the reference in float64.

GELU_KERNELS_FUZZ=10 runs ten times as many. A failure prints the smallest failing case and a
decorator that reproduces it; `--hypothesis-seed` repeats a run.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from torch import Tensor
from torch.autograd import forward_ad

from tests import bits
from tests.calls import CALLS, PUBLIC_CALLS, SEED, Call, Results, Sample
from tests.contracts.random_calls import WITHOUT_OVERLAP, draw_sample
from tests.oracles import error_bounds

pytestmark = pytest.mark.slow

CASES = 10_000  # of all tests together
SHARES = {
    "values": 0.42,
    "gradients": 0.25,
    "forward_mode": 0.1,
    "autocast": 0.05,
    "vmap": 0.12,
    "compiled": 0.06,
}
ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def counted(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """conftest.py prints the sum."""
    before = ran.total()
    yield
    record_property("fuzz_cases", ran.total() - before)


def cases(name: str, tests: int = 1) -> settings:
    count = CASES * SHARES[name] * float(os.environ.get("GELU_KERNELS_FUZZ", "1")) / tests
    return settings(
        max_examples=int(count),
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink],
    )


def check_values(sample: Sample, f: Callable[..., Results], mode=nullcontext) -> None:
    before = [t.clone() for t in sample.tensors]
    with mode():
        results = f(*sample.tensors)
    assert all(map(bits.same, sample.tensors, before))
    error_bounds.check(sample, results, error_bounds.of_results(sample))


def check_gradients(sample: Sample, leaves: tuple[Tensor, ...], y: Tensor) -> None:
    dy = torch.randn(y.shape).to(y.dtype)
    ours = torch.autograd.grad(y, leaves, dy)
    assert [t.dtype for t in ours] == [t.dtype for t in leaves]
    ours = tuple(t.to(y.dtype) for t in ours)
    error_bounds.check(sample, ours, error_bounds.of_gradients(sample, dy), is_gradient=True)


def through_torch(sample: Sample) -> Callable[..., Results]:
    def f(*tensors: Tensor) -> Results:
        if sample.call.is_random:
            torch.manual_seed(SEED)
        return sample.call.through_torch(*tensors, gate=sample.gate)

    return f


def wide_compositions(sample: Sample) -> Sample:
    """docs/guide/gates.md: some modes of cdf_gate are compositions of PyTorch's operators, which
    have no bound in float32."""
    if sample.call.op.family != "cdf":
        return sample
    return Sample(sample.call, sample.gate, [t.double() for t in sample.tensors])


MODES = {"eager": nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@cases("values")
@given(st.data())
def test_values(data: DataObject) -> None:
    ran["values"] += 1
    sample = draw_sample(data, CALLS)
    mode = MODES[data.draw(st.sampled_from([*MODES]))]
    f = through_torch(sample) if data.draw(st.booleans()) else sample.ours_of_all
    check_values(sample, f, mode)


@cases("gradients")
@given(st.data())
def test_gradients(data: DataObject) -> None:
    ran["gradients"] += 1
    sample = draw_sample(data, PUBLIC_CALLS)
    leaves = tuple(t.requires_grad_() for t in sample.floating)
    (y,) = sample.ours(*leaves)
    check_gradients(sample, leaves, y)


@cases("forward_mode")
@given(st.data())
def test_forward_mode(data: DataObject) -> None:
    """Of finite numbers: forward mode multiplies the reference's infinities by zeros."""
    ran["forward_mode"] += 1
    drawn = draw_sample(data, PUBLIC_CALLS, layouts=WITHOUT_OVERLAP, finite=True)
    sample = wide_compositions(drawn)
    tangents = [torch.randn(t.shape).to(t.dtype) for t in sample.floating]
    with forward_ad.dual_level():
        duals = map(forward_ad.make_dual, sample.floating, tangents)
        (y,) = sample.ours(*duals)
        ours = forward_ad.unpack_dual(y).tangent
    error_bounds.check_tangent(sample, ours, tangents)


@cases("autocast")
@given(st.data())
def test_autocast(data: DataObject) -> None:
    """Parameters in float32 follow x."""
    ran["autocast"] += 1
    sample = draw_sample(data, PUBLIC_CALLS, [torch.bfloat16, torch.float16])
    x, *others = sample.floating
    leaves = (x, *(t.float() for t in others))
    leaves = tuple(t.requires_grad_() for t in leaves)
    with torch.autocast("cpu", torch.bfloat16):
        (y,) = sample.ours(*leaves)
    assert y.dtype == x.dtype
    error_bounds.check(sample, (y,), error_bounds.of_results(sample))
    check_gradients(sample, leaves, y)


def with_folded_bias(call: Call, tensors: list[Tensor], dims: list[int | None]) -> list[Tensor]:
    """docs/guide/accuracy.md: in a batch of biases the sum x + bias is rounded."""
    named = dict(zip(call.tensors, tensors, strict=True))
    batched = dict(zip(call.tensors, dims, strict=True)).get("bias") is not None
    if call.op.family == "gate" and batched:
        named["x"], named["bias"] = named["x"] + named["bias"], torch.zeros_like(named["bias"])
    return [*named.values()]


@cases("vmap")
@given(st.data())
def test_vmap(data: DataObject) -> None:
    """Of tensors with and without a batch, which is their first or their last dimension."""
    ran["vmap"] += 1
    sample = wide_compositions(draw_sample(data, CALLS))
    batch = data.draw(st.integers(1, 3))
    dims, tensors = [], []
    for name, t in zip(sample.call.tensors, sample.tensors, strict=True):
        dim = data.draw(st.sampled_from([0, None, -1]))
        if dim is not None and (name == "scale" or not t.is_floating_point()):
            dim = None
        dims.append(dim)
        tensors.append(
            t
            if dim is None
            else torch.stack([t.roll(i, -1) if t.dim() else t for i in range(batch)], dim)
        )
    if dims.count(None) == len(dims):
        dims[0], tensors[0] = 0, torch.stack([tensors[0]] * batch)
    results = torch.vmap(sample.ours_of_all, tuple(dims), randomness="same")(*tensors)
    for i in range(batch):
        one = [t if d is None else t.select(d, i) for t, d in zip(tensors, dims, strict=True)]
        one = Sample(sample.call, sample.gate, with_folded_bias(sample.call, one, dims))
        expected = error_bounds.of_results(one)
        if "dbias" in one.call.op.outputs:
            expected[-1].terms_are_rounded = True  # docs/guide/accuracy.md
        error_bounds.check(one, tuple(r[i] for r in results), expected)


# Few programs, each for many inputs.
PROGRAMS = [(call, "aot_eager") for call in PUBLIC_CALLS]
PROGRAMS += [(call, "inductor") for call in PUBLIC_CALLS if call.op.label in ("bias_gelu", "geglu")]
MATRICES = st.tuples(st.integers(2, 70), st.integers(2, 70))


@pytest.mark.parametrize("call, backend", PROGRAMS, ids=str)
def test_compiled(call: Call, backend: str) -> None:
    torch.compiler.reset()
    gate = call.gates[-1]
    compiled = torch.compile(call.function(gate), fullgraph=True, dynamic=True, backend=backend)

    @cases("compiled", len(PROGRAMS))
    @given(st.data())
    def run(data: DataObject) -> None:
        ran["compiled"] += 1
        layouts = st.just(data.draw(st.sampled_from(["contiguous", "second half"])))
        dtypes = [torch.float32] if backend == "inductor" else [torch.float32, torch.bfloat16]
        sample = draw_sample(data, [call], dtypes, MATRICES, layouts)
        sample.gate = gate
        leaves = tuple(t.requires_grad_() for t in sample.floating)
        if call.is_random:
            torch.manual_seed(SEED)
        y = compiled(*leaves)
        error_bounds.check(sample, (y,), error_bounds.of_results(sample))
        check_gradients(sample, leaves, y)

    # Else two sizes that are the same in the first call have to be the same in all.
    with torch.fx.experimental._config.patch(use_duck_shape=False):
        run()
