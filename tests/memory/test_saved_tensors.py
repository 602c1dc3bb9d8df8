"""What autograd keeps for backward: as little as backward reads, and nobody writes over it."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional
from gelu_kernels.operators.table import core
from gelu_kernels.operators.types import Extent
from tests.calls import PUBLIC_CALLS, SEED, Call, Results, Sample

SHAPE = (6, 8)


@pytest.fixture(params=PUBLIC_CALLS, ids=str)
def sample(request: pytest.FixtureRequest, device: str) -> Sample:
    call: Call = request.param
    return call.sample(SHAPE, lambda *s: torch.randn(s, dtype=torch.float64, device=device))


def gradients(sample: Sample, dy: Tensor) -> Results:
    leaves = sample.leaves()
    return torch.autograd.grad(sample.expected(*leaves), leaves, dy)


def assert_close(ours: object, expected: object) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_what_is_saved(sample: Sample) -> None:
    """The tensors that the core operator of backward reads, without a copy of an input."""
    saved = []
    leaves = sample.leaves()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t) or t.clone(), lambda t: t * 1
    ):
        (y,) = sample.ours(*leaves)
    reads = core(sample.call.op.backward).inputs
    reads = {n: e for n, e in reads.items() if n in sample.call.tensors or n == "mask"}
    assert len(saved) == len(reads)
    inputs = {name: t.data_ptr() for name, t in sample.named(*leaves).items()}
    for name, t in zip(reads, saved, strict=True):
        assert t.shape == (
            sample.named()[name].shape if name in inputs else reads[name].shape(y.shape)
        )
        assert reads[name] is Extent.BITS or t.data_ptr() == inputs[name]
    dy = torch.randn_like(y)
    assert_close(torch.autograd.grad(y, leaves, dy), gradients(sample, dy))


def test_backward_modifies_nothing(sample: Sample) -> None:
    """However often it runs."""
    leaves = sample.leaves()
    (y,) = sample.ours(*leaves)
    dy = torch.randn_like(y)
    before = [t.detach().clone() for t in (*leaves, y, dy)]
    expected = gradients(sample, dy)
    for retain in (True, False):
        assert_close(torch.autograd.grad(y, leaves, dy, retain_graph=retain), expected)
    assert all(map(torch.equal, (*leaves, y, dy), before))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, leaves, dy)


def test_modifying_a_saved_tensor_raises(sample: Sample) -> None:
    reads = core(sample.call.op.backward).inputs
    for place, name in enumerate(sample.call.tensors):
        if name not in reads:  # the SOI map keeps its mask alone
            continue
        inputs = [t.clone() for t in sample.leaves()]
        (y,) = sample.ours(*inputs)
        with torch.no_grad():
            inputs[place].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_result_may_be_modified(sample: Sample) -> None:
    leaves = sample.leaves()
    (y,) = sample.ours(*leaves)
    y.mul_(3).sum().backward()
    assert_close(tuple(t.grad for t in leaves), gradients(sample, torch.full_like(y, 3)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(sample: Sample, reentrant: bool) -> None:
    """Recomputation draws the mask that forward drew."""
    leaves = sample.leaves()
    torch.manual_seed(SEED)
    y = checkpoint(
        lambda *t: sample.call(*t, gate=sample.gate)[0], *leaves, use_reentrant=reentrant
    )
    functional.soi_map(torch.zeros(3))  # other draws come between
    dy = torch.randn_like(y)
    y.backward(dy)
    assert_close(tuple(t.grad for t in leaves), gradients(sample, dy))


def test_freed_graph_of_second_order(sample: Sample) -> None:
    leaves = sample.leaves()
    (y,) = sample.ours(*leaves)
    dy = torch.randn_like(y).requires_grad_()
    (dx,) = torch.autograd.grad(y, leaves[0], dy, create_graph=True)
    torch.autograd.grad(dx, dy, torch.ones_like(dx))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(dx, dy, torch.ones_like(dx))


def test_no_graph_is_recorded_when_none_is_wanted(sample: Sample) -> None:
    leaves = sample.leaves()
    with torch.no_grad():
        assert sample.ours(*leaves)[0].grad_fn is None
    with torch.inference_mode():
        (y,) = sample.ours(*leaves)
    assert y.is_inference() and not y.requires_grad
    assert_close(y.clone(), sample.expected()[0])
    assert not sample.ours()[0].requires_grad


def test_a_long_chain_is_freed_without_recursion() -> None:
    x = torch.zeros(1, requires_grad=True)
    y = x
    for _ in range(200_000):
        y = functional.gelu(y)
    assert y.requires_grad
    del y
