"""What the random operators share: the seeds they draw, and the masks that backward reads.

That a gradient has the mask of its result: test_saved_tensors.py, test_random_seed.py.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from gelu_kernels.operators.types import Extent
from tests import bits
from tests.calls import CORE_CALLS, PUBLIC_CALLS, SEED, Call, Sample, normal
from tests.cases import each

RANDOM = [call for call in PUBLIC_CALLS if call.is_random]
MAKE_A_MASK = [call for call in CORE_CALLS if "mask" in call.op.outputs]
TAKE_A_MASK = [call for call in CORE_CALLS if "mask" in call.tensors]
TAKE_A_SEED = [call for call in CORE_CALLS if "seed" in call.tensors]


def inputs(call: Call, device: str = "cpu", *shape: int) -> list[Tensor]:
    return call.inputs(shape or (9, 34), lambda *s: normal(*s, device=device))


def routes(call: Call, gate: str = "normal") -> list[Callable[..., Tensor]]:
    """Functions of the tensors and a generator."""

    def through_torch(*tensors: Tensor, generator: torch.Generator) -> Tensor:
        positional, named = call.arguments(*tensors, gate=gate)
        return call.op.overload(*positional, **named, generator=generator)

    return [call.function(gate), through_torch]


# Generators


@each(call=RANDOM)
def test_a_call_draws_one_seed(call: Call, device: str) -> None:
    """As torch.randint does, from the given generator and from no other."""
    tensors, gate = inputs(call, device), call.gates[-1]
    default = torch.get_rng_state()
    for route in routes(call, gate):
        generator = torch.Generator(device).manual_seed(SEED)
        for draws in range(2):
            y = route(*tensors, generator=generator)
            (expected,) = Sample(call, gate, tensors, draws).expected()
            torch.testing.assert_close(y, expected)
    assert torch.equal(torch.get_rng_state(), default)


def test_seeds_have_63_bits() -> None:
    """The oracle's, with which the test above compares."""
    seeds = torch.stack([torch.randint(2**63 - 1, ()) for _ in range(64)])
    assert int(seeds.max()).bit_length() == 63


@each(call=RANDOM)
def test_manual_seed(call: Call, device: str) -> None:
    tensors, results = inputs(call, device), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append([call(*tensors)[0] for _ in range(2)])
    once, again, other = results
    assert all(map(torch.equal, once, again))
    assert not torch.equal(*once) and not torch.equal(once[0], other[0])


@each(call=RANDOM)
def test_a_generator_of_another_device(call: Call) -> None:
    tensors = call.inputs((2, 4), lambda *s: torch.ones(s, device="meta"))
    by_function = rf"^({'|'.join(call.op.functions)})\(\): generator must be on the device of input"
    through_torch = f"gelu_kernels::{call.op.name}: generator must be on the device of x"
    for route, message in zip(routes(call), (by_function, through_torch), strict=True):
        with pytest.raises(ValueError, match=f"{message}, meta, got cpu"):
            route(*tensors, generator=torch.Generator())


@each(call=RANDOM)
def test_jagged_tensors_draw_from_the_generator(call: Call) -> None:
    """The mask of their values."""
    offsets = torch.tensor([0, 3, 3, 9])
    values = inputs(call)
    nested = [
        t if extent is Extent.COLUMNS else torch.nested.nested_tensor_from_jagged(t, offsets)
        for t, extent in zip(values, call.tensors.values(), strict=True)
    ]
    ours, expected = (torch.Generator().manual_seed(SEED) for _ in range(2))
    default = torch.get_rng_state()
    y = call.function()(*nested, generator=ours)
    assert bits.same(y.values(), call.function()(*values, generator=expected))
    assert torch.equal(y.offsets(), offsets)
    assert torch.equal(ours.get_state(), expected.get_state())
    assert torch.equal(torch.get_rng_state(), default)


@each(call=RANDOM)
def test_randomness_of_vmap(call: Call) -> None:
    x, *others = call.inputs((4, 400), lambda *s: torch.ones(s))
    batch, in_dims = x.expand(5, *x.shape), (0, *(None for _ in others))
    function = call.function()
    of_no_batch = lambda _: function(x, *others)  # noqa: E731
    for f, arguments in (
        (vmap(function, in_dims), (batch, *others)),
        (vmap(of_no_batch), (torch.arange(5),)),
    ):
        with pytest.raises(RuntimeError, match="randomness"):
            f(*arguments)
    torch.manual_seed(1)
    alone = function(x, *others)
    torch.manual_seed(1)
    same_for_all = vmap(function, in_dims, randomness="same")(batch, *others)
    assert all(torch.equal(one, alone) for one in same_for_all)
    for different in (
        vmap(function, in_dims, randomness="different")(batch, *others),
        vmap(of_no_batch, randomness="different")(torch.arange(5)),
    ):
        assert len({tuple(one.flatten().tolist()) for one in different}) == 5


# Masks


@each(call=MAKE_A_MASK)
def test_the_mask_has_no_gradient_and_may_not_change(call: Call, device: str) -> None:
    sample = Sample(call, call.gates[0], inputs(call, device))
    y, mask = sample.ours(*sample.leaves())
    assert y.requires_grad and not mask.requires_grad
    mask.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each(call=TAKE_A_MASK)
def test_a_strided_mask(call: Call, device: str) -> None:
    named = dict(zip(call.tensors, inputs(call, device), strict=True))
    strided = torch.stack([named["mask"], ~named["mask"]], 1)[:, 0]
    results = call(*(named | {"mask": strided}).values())
    assert all(map(bits.same, results, call(*named.values())))


# Places: where the elements are in a whole tensor

PLACES = [
    *((1,), (2,), (3,), (4,), (8,), (1001,)),
    (2**35 - 100,),  # the high word of the counter begins to count
    (2**40 + 7,),
    *((5, 17, 100), (3, 100, 1001), (0, 1, 7), (2**35 - 30, 256, 300), (11, 5, 0), (2, 10_000, 3)),
]


def at(call: Call, **place: int) -> Call:
    return replace(call, options=call.options | place)


@each(call=TAKE_A_SEED, place=PLACES)
def test_random_bits_of_a_place(call: Call, place: tuple[int, ...], device: str) -> None:
    names = "offset", "row_length", "row_stride"
    placed = at(call, **dict(zip(names, place, strict=False)))
    tensors = inputs(call, device, 5, 340)
    for gate in call.gates:
        sample = Sample(placed, gate, tensors)
        torch.testing.assert_close(sample.ours(), sample.expected())


@each(call=TAKE_A_SEED, name=["offset", "row_length", "row_stride"])
def test_a_place_is_not_negative(call: Call, name: str) -> None:
    message = f"gelu_kernels::{call.op.name}: {name} must not be negative, got -2"
    with pytest.raises(ValueError, match=message):
        at(call, **{name: -2})(*inputs(call))
