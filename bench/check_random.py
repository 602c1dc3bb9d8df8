"""Checks an SOI map: kept elements are exact, and their number is plausible.

The count of an element that is kept with probability p has a variance of p (1 - p) per draw. By
Bernstein's inequality, a sum with variance v is t away from its mean with a probability of at most
2 exp(-t^2 / 2 / (v + t / 3)). A sum beyond the t for which this equals CHANCE / COMPARISONS is
refused, so the probability of refusing a correct map anywhere in a benchmark is below CHANCE.

The timed tensors say too little about F; 16 elements say nothing. Each side therefore also runs
once on PROBES, a few values of x, each drawn many times: often enough that the probability of
missing a wrong side is below CHANCE if it has another gate's F, an F that is 0.01 off for |x| < 3,
one independent of x, or one of another element's x. The F of "normal" and "normal_tanh" are the
hardest to tell apart. That takes the fewest draws near x = -3.2, where they differ by 15 %, so most
probes lie there and are counted together. tests/bench/test_checks.py computes these probabilities.

The timed tensors are counted as well, since the kernel may depend on the size. Over LEAST normal
numbers, a side that keeps half of all elements is 15 sigmas beyond the bound; smaller faults at one
size would be missed.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from bench.check_exact import assert_close
from bench.operators import OPERATORS, distribution
from bench.sides import Side
from bench.workloads import DTYPES, Inputs, Workload

CHANCE = 1e-9
COMPARISONS = 2**14  # two or nine for each side, gate, dtype, size and pass
TOLERANCE = 2e-6  # of a probability, as functional.soi_map states it
TAIL = [-3.5 + i / 64 for i in range(33)]  # every bfloat16 there
CENTRE = [-2.0, -1.25, -0.5, -0.25, 0.25, 0.5, 1.25, 2.0]
# A prime number of them: in a mask shifted by a power of two, no element lines up.
PROBES = torch.tensor(TAIL + CENTRE, dtype=torch.float64)
ROWS, DRAWS = 2**15, 20  # of the probes, in a tensor; of that tensor
SAMPLE, LEAST = 2**18, 2**12  # elements of a timed tensor that are counted: in one draw, in all


def bound(variance: Tensor, chance: float) -> Tensor:
    """The deviation that a sum exceeds with at most this probability."""
    log = math.log(2 / chance)
    return log / 3 + (log**2 / 9 + 2 * variance * log).sqrt()


def right(gate: str, x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """F in float64, and as PyTorch rounds it: at the end, or in each step, which leaves the F of
    "normal" without a tail in 16 bits."""
    f = distribution(gate)
    exact = f(x.double())
    return [exact, exact.to(dtype).double(), f(x.to(dtype)).double()]


def refuse_counts(counts: Tensor, draws: int, groups: Tensor, wanted: list[Tensor]) -> None:
    """Raises unless one of the probabilities explains the counts of all groups."""
    problems = []
    for p in wanted:
        excess = (groups @ (counts - draws * p)).abs() - TOLERANCE * draws * groups.sum(1)
        beyond = excess - bound(groups @ (draws * p * (1 - p)), CHANCE / COMPARISONS)
        if (beyond <= 0).all():
            return
        problems.append(excess[beyond.argmax()].item())
    raise AssertionError(f"the SOI map keeps {problems[0]:.0f} elements too many or too few")


def groups_of_probes(device: str) -> Tensor:
    """The tail together, and each other probe."""
    groups = torch.zeros(1 + len(CENTRE), len(PROBES), dtype=torch.float64, device=device)
    groups[0, : len(TAIL)] = 1
    groups[1:, len(TAIL) :] = torch.eye(len(CENTRE))
    return groups


@lru_cache(maxsize=64)
def problem_with_probes(side: Side, op: str, gate: str, dtype: str, device: str) -> str | None:
    probes = PROBES.to(device, DTYPES[dtype])
    x = probes.expand(ROWS, -1)
    # These leave the argument of F exact.
    ones = torch.ones_like(probes)
    operands = {
        ("x",): (x.contiguous(),),
        ("x", "bias"): (x + 1, -ones),
        ("x", "loc", "scale"): (2 * x, 0 * ones, 2 * ones),
    }[OPERATORS[op].operands]
    counts = sum((side.forward(*operands) != 0).sum(0) for _ in range(DRAWS))
    try:
        wanted = right(gate, probes, probes.dtype)
        refuse_counts(counts, DRAWS * ROWS, groups_of_probes(device), wanted)
    except AssertionError as error:
        return str(error)
    return None


def kept_exactly(results: tuple[Tensor, ...], source: Tensor, has_location: bool) -> Tensor:
    """The mask. No gradient goes through it to a location and a scale."""
    kept, *gradients = results
    mask = kept != 0
    if not torch.equal(kept, torch.where(mask, source, 0)):
        raise AssertionError("the SOI map changes an element that it keeps")
    for gradient in gradients:
        sums = kept.double().sum(0)
        assert_close(gradient, 0 * sums if has_location else sums)
    return mask


def source_and_score(operands: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What the mask multiplies, and the argument of F."""
    x = operands["x"]
    if "bias" in operands:
        x = x + operands["bias"]
    if "loc" in operands:
        return x, (x.double() - operands["loc"].double()) / operands["scale"].double()
    return x, x


def check_soi(workload: Workload, inputs: Inputs, label: str, side: Side) -> None:
    operands = dict(zip(workload.operator.operands, inputs.operands, strict=True))
    x, z = source_and_score(operands)
    source = x if label == "forward" else inputs.dy
    draws = math.ceil(LEAST / workload.elements)
    sample = z.flatten()[:SAMPLE]
    counts = torch.zeros_like(sample, dtype=torch.float64)
    for _ in range(draws):
        mask = kept_exactly(side.results(label, inputs), source, "loc" in operands)
        counts += mask.flatten()[:SAMPLE]
    groups = torch.stack([sample < 0, sample > 0]).double()
    refuse_counts(counts, draws, groups, right(workload.gate, sample, x.dtype))
    names = (workload.op, workload.gate, workload.dtype, x.device.type)
    if problem := problem_with_probes(side, *names):
        raise AssertionError(problem)
