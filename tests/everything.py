"""All public operators in one function, for the tests of compilers."""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.calls import PUBLIC_CALLS, SEED, Call, Results, Sample


def function(call: Call) -> Callable[..., Tensor]:
    """With a gate that is not the default."""
    return call.function(call.gates[-1])


def sample_of(call: Call, device: str, rows: int = 6, columns: int = 5) -> Sample:
    return call.sample((rows, columns), lambda *s: torch.randn(s, device=device), call.gates[-1])


FUNCTIONS = [(function(call), len(call.tensors)) for call in PUBLIC_CALLS]


def everything(*tensors: Tensor) -> Results:
    results, at = [], 0
    for f, count in FUNCTIONS:
        results.append(f(*tensors[at : at + count]) * 1.5)
        at += count
    return tuple(results)


class Everything:
    """Its tensors, and a comparison with the expected results."""

    def __init__(self, device: str, rows: int = 6) -> None:
        draws = 0
        self.samples = []
        for call in PUBLIC_CALLS:
            sample = sample_of(call, device, rows)
            sample.draws_before = draws
            draws += call.is_random
            self.samples.append(sample)

    @property
    def tensors(self) -> list[Tensor]:
        return [t for sample in self.samples for t in sample.tensors]

    def check(self, f: Callable[..., Results], has_gradients: bool = True) -> None:
        """Compares the values and, after one backward, the gradients."""
        leaves = [t for sample in self.samples for t in sample.leaves()]
        inputs = leaves if has_gradients else self.tensors
        torch.manual_seed(SEED)
        values = f(*inputs)
        if has_gradients:
            sum(y.square().sum() for y in values).backward()
        rest = iter(inputs)
        for sample, y in zip(self.samples, values, strict=True):
            doubles = sample.leaves(torch.float64)
            expected = sample.expected(*doubles)[0] * 1.5
            ours, theirs = [y.double()], [expected]
            mine = [next(rest) for _ in doubles]
            if has_gradients:
                ours += [t.grad.double() for t in mine]
                theirs += torch.autograd.grad(expected.square().sum(), doubles)
            torch.testing.assert_close(ours, theirs, rtol=4e-6, atol=4e-6)
