"""Checks a result before it is timed."""

from collections.abc import Callable
from functools import partial

import torch

from bench.check_exact import Expected, assert_close, check_exact, expected
from bench.check_random import CHANCE, COMPARISONS, bound, check_soi
from bench.sides import Side
from bench.workloads import Inputs, Workload

# Computes a pass; raises AssertionError, or returns the largest error in ULP where it knows it.
Check = Callable[[str, Side], float | None]
CLEAR = 1e-2  # larger results are never rounded to 0


def checker(workload: Workload, inputs: Inputs) -> Check:
    if workload.operator.family == "dropout":
        return partial(check_dropout, expected(workload, inputs), workload, inputs)
    if workload.operator.is_random:
        return partial(check_soi, workload, inputs)
    return partial(check_exact, expected(workload, inputs), inputs)


def check_dropout(
    exact: Expected, workload: Workload, inputs: Inputs, label: str, side: Side
) -> None:
    """Kept elements equal `exact`, the result without dropout divided by 1 - p, and their number is
    plausible. A correct result is refused as rarely as a correct SOI map."""
    results, wanted = side.results(label, inputs), exact.results(label)
    for tensor, right in zip(results, wanted, strict=True):
        if tensor.dim() == 1:  # the gradient of a bias
            sums = results[0].double().sum(0)
            assert_close(tensor, sums, inputs.dy.numel() / tensor.numel())
        else:
            assert_close(tensor.detach(), torch.where(tensor != 0, right, 0))
    columns = inputs.dy.size(-1)
    first, right = (t.narrow(-1, 0, columns) for t in (results[0], wanted[0]))
    clear = right.abs() > CLEAR
    count, draws = ((first != 0) & clear).sum().double(), clear.sum().double()
    p = workload.operator.numbers["p"]
    excess = (count - draws * (1 - p)).abs()
    if excess > bound(draws * p * (1 - p), CHANCE / COMPARISONS):
        raise AssertionError(f"dropout keeps {excess:.0f} elements too many or too few")
