"""Every public operator on jagged nested tensors, forward and backward."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gelu_kernels.operators.types import Extent
from tests.calls import PUBLIC_CALLS, Call, Sample
from tests.cases import each
from tests.compile.comparison import check

LENGTHS, FEATURES = (3, 0, 5), 4
OFFSETS = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()])


def sample_of(call: Call, device: str) -> Sample:
    """Of the values, which lie end to end."""
    return call.sample((sum(LENGTHS), FEATURES), lambda *s: torch.randn(s, device=device))


def of_values(call: Call) -> Callable[..., Tensor]:
    """The call on nested tensors, as a function of their values."""

    call, extents = call.function(), tuple(call.tensors.values())

    def f(*tensors: Tensor) -> Tensor:
        offsets = OFFSETS.to(tensors[0].device)
        given = [
            t
            if extent in (Extent.COLUMNS, Extent.NUMBER)
            else torch.nested.nested_tensor_from_jagged(t, offsets)
            for t, extent in zip(tensors, extents, strict=True)
        ]
        return call(*given).values()

    return f


@each(call=PUBLIC_CALLS, compiled=[False, True])
def test_values_and_gradients(call: Call, compiled: bool, device: str) -> None:
    f = of_values(call)
    if compiled:
        torch.compiler.reset()
        f = torch.compile(f, backend="aot_eager", fullgraph=True)
    sample = sample_of(call, device)
    check(f, lambda *t: sample.expected(*t)[0], *sample.tensors)


def nested(device: str = "cpu") -> Tensor:
    parts = [torch.randn(n, FEATURES, device=device) for n in LENGTHS]
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


BIASED = [call for call in PUBLIC_CALLS if "bias" in call.tensors]


@each(call=BIASED)
def test_the_result_has_the_shape_of_x(call: Call, device: str) -> None:
    x = nested(device)
    assert (call(x, torch.randn(FEATURES, device=device))[0] + x).shape == x.shape


@each(call=BIASED)
def test_errors(call: Call) -> None:
    x, bias = nested(), torch.randn(FEATURES)
    op = f"gelu_kernels::{call.op.name}"
    with pytest.raises(ValueError, match=f"{op}: x must not be ragged along its"):
        call(x.transpose(1, 2), bias)
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 3])
    holes = torch.nested.narrow(
        torch.randn(2, 6, FEATURES), 1, starts, lengths, layout=torch.jagged
    )
    with pytest.raises(ValueError, match=re.escape(f"{op}: x must have no holes")):
        call(holes, bias)
    with pytest.raises(ValueError, match=f"{op}: bias must be as long as"):
        call(x, torch.randn(FEATURES + 1))
