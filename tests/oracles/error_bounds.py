"""The largest error that a result of any call may have, and the comparison with float64.

The bounds, in units in the last place, come from the table of operators (CoreOperator.ulp,
ulp_of_16_bits) and from docs/. A unit is at most eps of a number. The bounds are relative to the
size of a result: its magnitude or, where terms cancel, the sum of their magnitudes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gelu_kernels.operators.table import core
from gelu_kernels.operators.types import CoreOperator, Extent, PublicOperator
from tests.calls import Call, Results, Sample

SUMS = Extent.COLUMNS, Extent.ROWS, Extent.NUMBER

# The roundings of a sum over blocks of rows, then over the blocks: see test_bias_gradient.py.
DEPTH = 256 + 80

# The errors of the references in float64, relative to a number in its tail, and to terms that
# cancel.
REFERENCE, REFERENCE_OF_TERMS = 1e-12, 1e-14

# The errors of the float32 formulas behind a 16-bit result: relative to the terms of a sum
# (test_cdf.py), and of a derivative in units of its rounding error (test_bias_gradient.py).
FLOAT32, DERIVATIVE = 2.0**-20, 1 / 16

# The largest x/scale and z of the fuzzing, which multiply a density in cdf_gate.
LARGEST_Z = 256.0


@dataclass
class Expected:
    exact: Tensor
    size: Tensor
    terms: int = 1  # that are added up to an element
    terms_are_rounded: bool = False  # to 16 bits too
    written_as: torch.dtype | None = None  # a term, if not in the kernels' precision


def precision(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which the kernels compute."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def least(dtype: torch.dtype) -> float:
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


def operands(sample: Sample) -> dict[str, Tensor]:
    """The floating tensors in float64. The kernels round x + bias to the precision in which they
    compute: that sum takes the place of x. What dropout drops is 0, whatever it was."""
    t = {n: t.detach().double() for n, t in zip(sample.call.floating, sample.floating, strict=True)}
    if "bias" in t:
        total = (t["x"] + t["bias"]).to(precision(sample.floating[0].dtype))
        t["x"], t["bias"] = total.double(), torch.zeros_like(t["bias"])
    if sample.call.op.family == "dropout":
        kept = torch.cat([sample._kept] * 2, -1) if sample.call.op.halves else sample._kept
        t |= {name: t[name].where(kept, 0.0) for name in ("x", "up") if name in t}
    return t


def of_results(sample: Sample) -> list[Expected]:
    """The results of a call; masks and codes must be equal."""
    t = operands(sample)
    if "dy" in t:
        t["dy"].requires_grad_()
    results = dict(zip(sample.call.op.outputs, sample.expected(*t.values()), strict=True))
    found = _with_sizes(results, t, sample.call.op.outputs)
    if "ddx" in t:  # times 2 F' + x F''; 2 F' is at most 1 and may cancel with the other term
        found[0].size = found[0].size + 2 * (t["ddx"] * t["dy"]).detach().abs()
        found[0].terms_are_rounded = True
    return found


def of_gradients(sample: Sample, dy: Tensor) -> list[Expected]:
    """The gradients of each operand of a public operator."""
    t = {name: operand.requires_grad_() for name, operand in operands(sample).items()}
    (y,) = sample.expected(*t.values())
    wide = dy.detach().double().requires_grad_()
    gradients = torch.autograd.grad(y, [*t.values()], wide, create_graph=True)
    results = dict(zip((f"d{name}" for name in t), gradients, strict=True))
    extents = {f"d{name}": extent for name, extent in sample.call.tensors.items()}
    return _with_sizes(results, t | {"dy": wide}, extents)


def _with_sizes(
    results: dict[str, Tensor], t: dict[str, Tensor], extents: dict[str, Extent]
) -> list[Expected]:
    found = {name: Expected(t.detach(), t.detach().abs()) for name, t in results.items()}
    for name, expected in found.items():
        if extents[name] not in SUMS or "dy" not in t:
            continue
        # A gradient is linear in dy: its terms are dy times its derivative.
        (slope,) = torch.autograd.grad(
            results[name].sum(),
            t["dy"],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        terms, shape = (slope * t["dy"].detach()).abs(), expected.exact.shape
        expected.size = terms.sum(-1) if name == "dweight" else terms.sum_to_size(shape)
        expected.terms = terms.numel() // max(expected.exact.numel(), 1)
        if name == "dloc":  # dx = dy (F + x f/scale) has a term of dloc in it
            found["dx"].size = found["dx"].size + 2 * terms
    return [*found.values()]


def row_of(call: Call, is_gradient: bool) -> CoreOperator:
    """The core operator that computes it."""
    if isinstance(call.op, PublicOperator):
        return core(call.op.backward if is_gradient else call.op.forward)
    return call.op


def ulp_of(call: Call, dtype: torch.dtype, is_gradient: bool) -> float:
    """Of docs/guide/accuracy.md: in 16 bits 3/4 for the gate of a sum and for dy g', and half a
    unit more for the product dy g' in others."""
    row = row_of(call, is_gradient)
    is_product = row.family == "gate" and "dy" in row.inputs
    if dtype.itemsize > 2:
        return row.tolerance(dtype) + 0.5 * is_product
    return max(row.tolerance(dtype), 0.75 * (is_product or "bias" in call.tensors))


def tolerance(
    sample: Sample, expected: Expected, dtype: torch.dtype, ulp: float, others: float
) -> Tensor:
    """`others` is the largest factor."""
    info, unit = torch.finfo(dtype), torch.finfo(precision(dtype)).eps
    size, terms = expected.size, expected.terms
    if dtype.itemsize > 2 or expected.terms_are_rounded:
        bound = info.eps * ulp * size
    else:
        of_terms = info.eps / 2 * DERIVATIVE if terms > 1 else FLOAT32
        bound = info.eps * ulp * expected.exact.abs() + of_terms * size
    if terms > 1:
        bound = bound + min(terms, DEPTH) * unit / 2 * size + info.eps / 2 * expected.exact.abs()
    # What is no normal number, a factor or a result, has its error in units of the least one. Each
    # g(x) of a GLU may round to zero (docs/guide/gates.md).
    factors = terms if sample.call.op.family == "glu" or expected.terms_are_rounded else 1
    bound = bound + others * (factors * least(dtype) + ulp * terms * least(precision(dtype)))
    if sample.call.op.family == "cdf":  # docs/guide/gates.md: where F(z) is a normal number
        others *= LARGEST_Z
        smallest = torch.finfo(precision(dtype)).smallest_normal
        bound = bound + others * LARGEST_Z * terms * smallest
    return bound + REFERENCE * size + REFERENCE_OF_TERMS * others * terms


def largest_factor(sample: Sample) -> float:
    """The largest number that multiplies a gate's value or derivative."""
    found = 4.0  # of 1/(1 - p), 1/scale and up_offset
    for name, t in zip(sample.call.floating, sample.floating, strict=True):
        if t.numel() and (name not in ("x", "bias", "loc", "scale") or sample.call.op.halves):
            magnitude = t.detach().double().abs()
            found *= max(1.0, float(magnitude.where(magnitude < torch.inf, 0.0).max()))
    return found


def check(
    sample: Sample, results: Results, expected: list[Expected], is_gradient: bool = False
) -> None:
    ulp = ulp_of(sample.call, sample.floating[0].dtype, is_gradient)
    for result, e in zip(results, expected, strict=True):
        assert result.shape == e.exact.shape
        if not result.is_floating_point():
            assert torch.equal(result, e.exact)
            continue
        assert result.dtype == sample.floating[0].dtype
        check_one(sample, result, e, ulp)


def check_one(sample: Sample, result: Tensor, e: Expected, ulp: float) -> None:
    largest = torch.finfo(result.dtype).max
    real = torch.finfo(e.written_as or precision(result.dtype)).max
    others = largest_factor(sample)
    bound = tolerance(sample, e, result.dtype, ulp, others).nan_to_num(nan=torch.inf)
    wide = result.detach().double()
    right = (wide - e.exact).abs() <= bound
    if right.all():
        return
    right |= wide.isnan() & e.exact.isnan()
    right |= (e.exact.abs() + bound >= largest) & (wide * e.exact.sign() >= largest)
    # A product or a sum may overflow before a small factor or a term of the other sign comes.
    right |= ~wide.isfinite() & (e.size.nan_to_num(nan=torch.inf).clamp(others) > real)
    named = sample.named()
    if any(t.isinf().any() for name, t in named.items() if name != "x" or sample.call.op.halves):
        # docs/guide/gates.md: a gate that rounds to a zero, times infinity. The reference
        # differentiates a product, and adds infinities up.
        right |= ~wide.isfinite() & (~e.exact.isfinite() | (e.exact == 0))
    if not right.all():
        at = tuple(int(i) for i in (~right).nonzero()[0])
        raise AssertionError(
            f"{sample.call}, {sample.gate}: {wide[at]} at {at}, "
            f"not {e.exact[at]} to {bound.expand_as(wide)[at]}; {int((~right).sum())} are wrong"
        )


def check_tangent(sample: Sample, ours: Tensor, tangents: list[Tensor]) -> None:
    """The tangent of y, which is the sum of what each operand's tangent makes, and each half's of a
    tensor of two. Every term is as exact as a gradient, and rounded, as every sum of them is."""
    t = operands(sample)
    wide = [tangent.double() for tangent in tangents]
    parts = [
        [w if i == j else torch.zeros_like(w) for j, w in enumerate(wide)] for i in range(len(wide))
    ]
    if sample.call.op.halves:
        x, up = wide[0].chunk(2, -1)
        zero = torch.zeros_like(x)
        rest = parts[0][1:]
        parts[:1] = [[torch.cat([x, zero], -1), *rest], [torch.cat([zero, up], -1), *rest]]
    terms = []
    for part in parts:
        with forward_ad.dual_level():
            (y,) = sample.expected(*map(forward_ad.make_dual, t.values(), part))
            tangent = forward_ad.unpack_dual(y).tangent
        terms.append(torch.zeros_like(y) if tangent is None else tangent)
    size = sum(term.abs() for term in terms)
    e = Expected(sum(terms), size, terms_are_rounded=True, written_as=ours.dtype)
    ulp = ulp_of(sample.call, ours.dtype, True) + 1.5 * len(terms)
    check_one(sample, ours, e, ulp)
