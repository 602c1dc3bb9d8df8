"""What stands between a caller and an operator: function modes and subclasses of Tensor."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.calls import PUBLIC_CALLS, Call
from tests.cases import each
from tests.everything import sample_of

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


@each(call=PUBLIC_CALLS)
def test_a_function_mode_sees_the_operator(call: Call, device: str) -> None:
    sample = sample_of(call, device)
    with Log() as log:
        (y,) = sample.ours_of_all(*sample.tensors)
    assert log.calls == [f"gelu_kernels.{call.op.name}"]
    torch.testing.assert_close(y.double(), sample.expected()[0], **close)


@each(call=PUBLIC_CALLS)
def test_a_subclass_keeps_its_type(call: Call, device: str) -> None:
    """Whichever argument is of it."""
    sample = sample_of(call, device)
    for name in call.tensors:
        tensors = [t.as_subclass(Tagged) if n == name else t for n, t in sample.named().items()]
        Tagged.seen.clear()
        (y,) = sample.ours_of_all(*tensors)
        assert type(y) is Tagged, name
        assert Tagged.seen == [f"gelu_kernels.{call.op.name}"], name
        torch.testing.assert_close(y.as_subclass(Tensor).double(), sample.expected()[0], **close)
