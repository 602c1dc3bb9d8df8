"""What the benchmark refuses: results that are wrong, and SOI maps and dropout whose counts are."""

from collections.abc import Callable
from functools import partial
from itertools import product

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench import check_exact, check_random
from bench.check import checker
from bench.operators import GATES, OPERATORS, distribution
from bench.sides import Side, eager, ours
from bench.workloads import DTYPES, PASSES, Workload, make_inputs


def test_ours_and_eager_are_right() -> None:
    for op in OPERATORS:
        workload = Workload(op, "normal_tanh", "float32", 2**10)
        check = checker(workload, make_inputs(workload, "cpu"))
        for label, side in product(PASSES, (ours, eager)):
            check(label, side(op, "normal_tanh"))


def test_our_results_are_right_where_they_are_checked_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_exact, "PIECE", 2**8)
    for op in (op for op, row in OPERATORS.items() if not row.is_random):
        workload = Workload(op, "normal", "float32", 2**12)
        check = checker(workload, make_inputs(workload, "cpu"))
        for label in PASSES:
            check(label, ours(op, "normal"))


PROBES = check_random.PROBES
N = check_random.DRAWS * check_random.ROWS  # for each probe


def wrong_probabilities(gate: str, dtype: torch.dtype) -> dict[str, Tensor]:
    exact = distribution(gate)(PROBES)
    wrong = {
        "half": torch.full_like(exact, 0.5),
        "mean": exact.mean().expand_as(exact),
        "0.01 too much": exact + 0.01 * (PROBES.abs() < 3),
        "0.01 too little": exact - 0.01 * (PROBES.abs() < 3),
        "backwards": exact.flip(0),
    }
    wrong |= {f"shifted by 2^{i}": exact.roll(2**i) for i in range(23)}
    for other in set(GATES) - {gate}:
        for i, p in enumerate(check_random.right(other, PROBES.to(dtype), dtype)):
            wrong[f"{other}, rounded by way {i}"] = p
    return wrong


def test_the_chance_to_miss_a_wrong_map() -> None:
    """Its counts are so far beyond the bounds, for each probability that is right, that it is short
    of them by its own deviation with a chance below 1e-9; by Bernstein's inequality again, and with
    a tenth to spare."""
    groups = check_random.groups_of_probes("cpu")
    chance = check_random.CHANCE / check_random.COMPARISONS
    missed = []
    for gate, dtype in product(GATES, DTYPES.values()):
        right = check_random.right(gate, PROBES.to(dtype), dtype)
        bounds = [check_random.bound(groups @ (N * p * (1 - p)), chance) for p in right]
        for name, wrong in wrong_probabilities(gate, dtype).items():
            short = check_random.bound(groups @ (N * wrong * (1 - wrong)), 1e-9 / 3)
            for p, bound in zip(right, bounds, strict=True):
                distance = (groups @ (N * (wrong - p))).abs() - 2e-6 * N * groups.sum(1)
                if not ((distance - bound) / short).max() > 1.1:
                    missed.append(f"{gate}, {dtype}: {name}")
    assert not missed, missed


def test_the_chance_to_refuse_a_right_map() -> None:
    """The binomial tail beyond the bound, by its terms."""
    for draws, p in ((16, 0.5), (4096, 0.1), (4096, 3e-4), (N, 4e-4)):
        bound = check_random.bound(torch.tensor(draws * p * (1 - p)).double(), 1e-13).item()
        with mpmath.workdps(30):
            first = int(draws * p + bound) + 1
            log = mpmath.log(p) * first + mpmath.log1p(-p) * (draws - first)
            term = mpmath.binomial(draws, first) * mpmath.exp(log)
            ratio = (draws - first) * p / ((first + 1) * (1 - p))  # the next terms' at the most
            assert term / (1 - ratio) < 1e-13 / 2, (draws, p)


def keeps(probability: Callable[[Tensor], Tensor]) -> Side:
    return Side(lambda x: x * torch.bernoulli(probability(x.detach())))


WRONG_MAPS = {
    "half": keeps(lambda x: torch.full_like(x, 0.5)),
    "F of tanh": eager("soi_map", "normal_tanh"),
    "F of sigmoid": ours("soi_map", "logistic_1702"),
    "F of another x": keeps(lambda x: torch.special.ndtr(x.roll(1))),
    "drops nothing": Side(lambda x: x * 1),
    "drops all": Side(lambda x: x * 0),
    "GELU": Side(F.gelu),
    "dropout": Side(partial(F.dropout, p=0.5)),
}


def is_refused(check: Callable, side: Side, label: str, by: str = "") -> bool:
    try:
        check(label, side)
    except AssertionError as error:
        return by in str(error)
    return False


def test_wrong_maps_are_refused() -> None:
    for elements in (16, 2**16):
        workload = Workload("soi_map", "normal", "bfloat16", elements)
        check = checker(workload, make_inputs(workload, "cpu"))
        for name, side in WRONG_MAPS.items():
            assert is_refused(check, side, "forward", "the SOI map"), (name, elements)


def test_wrong_maps_with_a_bias_are_refused() -> None:
    soi_map = eager("soi_map", "normal").forward
    forwards: dict[str, tuple[Callable, tuple[str, ...]]] = {
        "right": (lambda x, bias: soi_map(x + bias), ()),
        "F without the bias": (
            lambda x, bias: (x + bias) * torch.bernoulli(torch.special.ndtr(x)),
            ("forward", "both"),
        ),
        "twice its gradient": (
            lambda x, bias: soi_map(x + (2 * bias - bias.detach())),
            ("both",),
        ),
    }
    workload = Workload("bias_soi_map", "normal", "float32", 2**14)
    check = checker(workload, make_inputs(workload, "cpu"))
    for name, (forward, wrong) in forwards.items():
        side = Side(forward)
        for label in ("forward", "both"):
            assert is_refused(check, side, label) == (label in wrong), (name, label)


def test_a_map_wrong_at_one_size_is_refused() -> None:
    """The probes cannot see it."""
    right = ours("soi_map", "normal").forward
    side = Side(lambda x: x * (torch.rand_like(x) < 0.5) if x.numel() < 2**14 else right(x))
    for label in ("forward", "backward", "both"):
        workload = Workload("soi_map", "normal", "float32", 2**10)
        with pytest.raises(AssertionError, match="too many or too few"):
            check_random.check_soi(workload, make_inputs(workload, "cpu"), label, side)


WRONG_DROPOUT: dict[str, Callable] = {
    "p": lambda x, bias: F.dropout(F.gelu(x + bias), 0.35),
    "not over 1 - p": lambda x, bias: F.dropout(F.gelu(x + bias), 0.3) * 0.7,
    "drops nothing": lambda x, bias: F.gelu(x + bias) / 0.7,
    "another gate": lambda x, bias: F.dropout(F.gelu(x + bias, approximate="tanh"), 0.3),
    "twice the gradient of the bias": lambda x, bias: F.dropout(
        F.gelu(x + bias + bias - bias.detach()), 0.3
    ),
}


def test_wrong_dropout_is_refused() -> None:
    workload = Workload("bias_gelu_dropout", "normal", "float32", 2**16)
    check = checker(workload, make_inputs(workload, "cpu"))
    for name, wrong in WRONG_DROPOUT.items():
        refused = [is_refused(check, Side(wrong), label) for label in ("forward", "both")]
        assert any(refused), name
