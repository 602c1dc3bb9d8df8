"""Many cases in one test."""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import product

import pytest
import torch

Case = dict[str, object]  # the arguments of a test


def name_of(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(name_of, value))
    return getattr(value, "__name__", str(value))


def check_each(check: Callable, cases: list[Case]) -> None:
    """Fails with the name of every case that fails; skips if every case does."""
    errors, skipped = {}, []
    for case in cases:
        torch.default_generator.manual_seed(0)  # of all devices would take a millisecond
        try:
            check(**case)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
        except (Exception, pytest.fail.Exception) as error:
            errors[name_of(tuple(case.values()))] = error
    if errors:
        found = (f"{case}: {type(error).__name__}: {error}" for case, error in errors.items())
        text = "\n".join([f"{len(errors)} cases failed", *found])
        raise AssertionError(text) from next(iter(errors.values()))
    if len(skipped) == len(cases):
        raise skipped[0]


def each(is_slow: Callable[..., bool] | None = None, **arguments: Iterable) -> Callable:
    """Calls a test with every combination of these arguments: one test, which names all that fail.

    For cases that fail together; ``pytest.mark.parametrize`` makes a test of each. Every case has
    the same seed. The cases that ``is_slow`` picks become a second test, marked slow.
    """
    quick, slow = [], []
    for values in product(*arguments.values()):
        case = dict(zip(arguments, values, strict=True))
        (slow if is_slow and is_slow(**case) else quick).append(case)
    assert quick, "no case is left for `make test`"

    def decorate(test: Callable) -> Callable:
        @wraps(test)
        def every_case(cases: list[Case] = quick, **fixtures: object) -> None:
            check_each(partial(test, **fixtures), cases)

        parameters = [p for p in signature(test).parameters.values() if p.name not in arguments]
        if not slow:
            every_case.__signature__ = Signature(parameters)
            return every_case
        chosen = Parameter("cases", Parameter.POSITIONAL_OR_KEYWORD)
        every_case.__signature__ = Signature([*parameters, chosen])
        parts = [
            pytest.param(quick, id="often"),
            pytest.param(slow, id="seldom", marks=pytest.mark.slow),
        ]
        return pytest.mark.parametrize("cases", parts)(every_case)

    return decorate
