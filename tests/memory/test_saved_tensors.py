"""What autograd keeps for backward: as little as backward reads, and never overwritten."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional
from gelu_kernels.operators.table import core
from gelu_kernels.operators.types import Extent
from tests.calls import PUBLIC_CALLS, SEED, Call, Results, Sample, normal
from tests.cases import each

SHAPE = (6, 8)


every_call = each(call=PUBLIC_CALLS)


def sample_of(call: Call, device: str) -> Sample:
    return call.sample(SHAPE, partial(normal, device=device))


def gradients(sample: Sample, dy: Tensor) -> Results:
    leaves = sample.leaves()
    return torch.autograd.grad(sample.expected(*leaves), leaves, dy)


def assert_close(ours: object, expected: object) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


@every_call
def test_what_is_saved(call: Call, device: str) -> None:
    """The tensors that the core operator of backward reads, without a copy of an input."""
    sample, saved = sample_of(call, device), []
    leaves = sample.leaves()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t) or t.clone(), lambda t: t * 1
    ):
        (y,) = sample.ours(*leaves)
    reads = core(call.op.backward).inputs
    reads = {n: e for n, e in reads.items() if n in call.tensors or n == "mask"}
    assert len(saved) == len(reads)
    inputs = {name: t.data_ptr() for name, t in sample.named(*leaves).items()}
    for name, t in zip(reads, saved, strict=True):
        assert t.shape == (
            sample.named()[name].shape if name in inputs else reads[name].shape(y.shape)
        )
        assert reads[name] is Extent.BITS or t.data_ptr() == inputs[name]
    dy = torch.randn_like(y)
    assert_close(torch.autograd.grad(y, leaves, dy), gradients(sample, dy))


@every_call
def test_backward_modifies_nothing(call: Call, device: str) -> None:
    """However often it runs."""
    sample = sample_of(call, device)
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


@every_call
def test_modifying_a_saved_tensor_raises(call: Call, device: str) -> None:
    sample, reads = sample_of(call, device), core(call.op.backward).inputs
    for place, name in enumerate(call.tensors):
        if name not in reads:  # the SOI map saves only its mask
            continue
        inputs = [t.clone() for t in sample.leaves()]
        (y,) = sample.ours(*inputs)
        with torch.no_grad():
            inputs[place].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@every_call
def test_the_result_may_be_modified(call: Call, device: str) -> None:
    sample = sample_of(call, device)
    leaves = sample.leaves()
    (y,) = sample.ours(*leaves)
    y.mul_(3).sum().backward()
    assert_close(tuple(t.grad for t in leaves), gradients(sample, torch.full_like(y, 3)))


@each(call=PUBLIC_CALLS, reentrant=[True, False])
def test_checkpoint(call: Call, reentrant: bool, device: str) -> None:
    """Recomputation draws the mask that forward drew."""
    sample = sample_of(call, device)
    leaves = sample.leaves()
    torch.manual_seed(SEED)
    y = checkpoint(call.function(sample.gate), *leaves, use_reentrant=reentrant)
    functional.soi_map(torch.zeros(3))  # other draws come between
    dy = torch.randn_like(y)
    y.backward(dy)
    assert_close(tuple(t.grad for t in leaves), gradients(sample, dy))


@every_call
def test_freed_graph_of_second_order(call: Call, device: str) -> None:
    sample = sample_of(call, device)
    leaves = sample.leaves()
    (y,) = sample.ours(*leaves)
    dy = torch.randn_like(y).requires_grad_()
    (dx,) = torch.autograd.grad(y, leaves[0], dy, create_graph=True)
    torch.autograd.grad(dx, dy, torch.ones_like(dx))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(dx, dy, torch.ones_like(dx))


@every_call
def test_no_graph_is_recorded_when_none_is_wanted(call: Call, device: str) -> None:
    sample = sample_of(call, device)
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
    for _ in range(100_000):
        y = functional.gelu(y)
    assert y.requires_grad
    del y
