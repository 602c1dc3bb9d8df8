"""Many cases in one test."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Signature, signature
from itertools import product

import pytest
import torch


def name_of(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(name_of, value))
    return getattr(value, "__name__", str(value))


def each(**arguments: Iterable) -> Callable[[Callable], Callable]:
    """Calls a test with every combination of these arguments: one test, which names all that fail.

    For cases that fail together; ``pytest.mark.parametrize`` makes a test of each. Every case has
    the same seed.
    """
    values = [list(choices) for choices in arguments.values()]

    def decorate(test: Callable) -> Callable:
        @wraps(test)
        def every_case(**fixtures: object) -> None:
            errors = {}
            for case in product(*values):
                torch.default_generator.manual_seed(0)  # of all devices would take a millisecond
                try:
                    test(**dict(zip(arguments, case, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    errors[name_of(case)] = error
            if errors:
                found = (f"{case}: {type(e).__name__}: {e}" for case, e in errors.items())
                text = "\n".join([f"{len(errors)} cases failed", *found])
                raise AssertionError(text) from next(iter(errors.values()))

        parameters = signature(test).parameters.values()
        every_case.__signature__ = Signature([p for p in parameters if p.name not in arguments])
        return every_case

    return decorate
