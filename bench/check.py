"""Checks a result before it is timed."""

from collections.abc import Callable
from functools import partial

from bench.check_dropout import check_dropout
from bench.check_exact import check_exact, expected
from bench.check_random import check_soi
from bench.sides import Side
from bench.workloads import Inputs, Workload

Check = Callable[[str, Side], None]  # computes a pass; raises AssertionError


def checker(workload: Workload, inputs: Inputs) -> Check:
    if workload.operator.family == "dropout":
        return partial(check_dropout, expected(workload, inputs), workload, inputs)
    if workload.operator.is_random:
        return partial(check_soi, workload, inputs)
    return partial(check_exact, expected(workload, inputs), inputs)
