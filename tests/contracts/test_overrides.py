"""What stands between a caller and an operator: function modes and subclasses of Tensor."""

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.calls import PUBLIC_CALLS, SEED, Call

close = {"rtol": 2e-6, "atol": 2e-6}


class Log(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls.append(str(function))
        return function(*args, **(kwargs or {}))


class Tagged(Tensor):
    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(str(function))
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("call", PUBLIC_CALLS, ids=str)
def test_a_function_mode_sees_the_operator(call: Call, device: str) -> None:
    sample = call.sample((6, 4), lambda *s: torch.randn(s, device=device), call.gates[-1])
    torch.manual_seed(SEED)
    with Log() as log:
        (y,) = call(*sample.tensors, gate=sample.gate)
    assert log.calls == [f"gelu_kernels.{call.op.name}"]
    torch.testing.assert_close(y.double(), sample.expected()[0], **close)


@pytest.mark.parametrize("call", PUBLIC_CALLS, ids=str)
def test_a_subclass_keeps_its_type(call: Call, device: str) -> None:
    """Whichever argument is of it."""
    sample = call.sample((6, 4), lambda *s: torch.randn(s, device=device), call.gates[-1])
    for place, t in enumerate(sample.tensors):
        tensors = list(sample.tensors)
        tensors[place] = t.as_subclass(Tagged)
        Tagged.seen.clear()
        torch.manual_seed(SEED)
        (y,) = call(*tensors, gate=sample.gate)
        assert type(y) is Tagged
        assert Tagged.seen == [f"gelu_kernels.{call.op.name}"]
        torch.testing.assert_close(y.as_subclass(Tensor).double(), sample.expected()[0], **close)
