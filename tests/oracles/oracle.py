"""What the numerical tests compare with: the gates and their derivatives from their definitions.

``exact`` is right to some 60 digits, ``reference`` to 1e-12 for whole arrays. Neither shares a
formula, a constant or a line of code with the kernels. A gate is g(x) = x F(x); ``order`` says
which of g, g', g'' is meant. ``evaluate`` runs the kernels.
"""

import math
from collections.abc import Sequence
from functools import cache

import mpmath
import numpy as np
import torch
from scipy.special import expit, ndtr
from torch import Tensor

import gelu_kernels

mp = mpmath.MPContext()
mp.dps = 60
mpf = mp.mpf

GATES = tuple(name for name, *_ in gelu_kernels._C.gates())
VALUE, DERIVATIVE, SECOND_DERIVATIVE = range(3)

# (bits of the significand, the smallest exponent of a normal number)
FORMATS = {
    torch.float64: (53, -1022),
    torch.float32: (24, -126),
    torch.float16: (11, -14),
    torch.bfloat16: (8, -126),
}

# F(x) = 1/(1 + exp(-v)), v = k1 x + k3 x^3.
CUBICS = {
    "normal_tanh": (mp.sqrt(8 / mp.pi), mp.sqrt(8 / mp.pi) * mpf("0.044715")),
    "logistic_1702": (mpf("1.702"), mpf(0)),
    "logistic": (mpf(1), mpf(0)),
}


def evaluate(gate: str, order: int, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The kernels' g, g' or g''; incoming gradients are 1."""
    ops, one = torch.ops.gelu_kernels, torch.ones_like(x)
    if order == VALUE:
        return ops.gate_forward(x, bias, gate)
    if order == DERIVATIVE:
        return ops.gate_backward(one, x, bias, gate)
    return ops.gate_double_backward(one, one, x, bias, gate)


@cache
def _tail(gate: str, a: float) -> tuple[mpf, mpf, mpf]:
    """F(-a), F'(a) and F''(a), each right to 60 digits: nothing cancels for a >= 0."""
    a = mpf(a)
    if gate == "cauchy":
        density = 1 / (mp.pi * (1 + a * a))
        return mp.atan2(1, a) / mp.pi, density, -2 * mp.pi * a * density**2
    if gate == "normal":
        a = min(a, mpf(1e6))  # mpmath has no erfc(1e300); F(-1e6) = 10^-2e11 is as good as zero
        density = mp.exp(-a * a / 2) / mp.sqrt(2 * mp.pi)
        return mp.erfc(a / mp.sqrt(2)) / 2, density, -a * density
    if gate == "laplace":
        tail = mp.exp(-a) / 2
        return tail, tail, -tail
    k1, k3 = CUBICS[gate]
    e = mp.exp(-(k1 * a + k3 * a**3))
    tail = e / (1 + e)
    product = tail / (1 + e)  # F (1 - F)
    slope = k1 + 3 * k3 * a * a
    density = slope * product
    return tail, density, product * (6 * k3 * a + slope * slope * (2 * tail - 1))


def distribution(gate: str, z: mpf) -> tuple[mpf, mpf]:
    """F(z) and F'(z)."""
    tail, density, _ = _tail(gate, abs(z))
    return (1 - tail if z > 0 else tail), density


def exact(gate: str, order: int, x: float) -> mpf:
    """g(x), g'(x) or g''(x) to 60 digits, less what cancels at the derivatives' roots.

    60 digits tell g(x) = x/2 + F'(0) x^2 from the tie x/2 down to the smallest bfloat16, where x is
    2^-133 = 1e-40; in the binary64 subnormals they do not.
    """
    if gate == "cauchy" and order == DERIVATIVE:
        return _cauchy_derivative(x)
    tail, density, density_slope = _tail(gate, abs(x))
    distribution = 1 - tail if x > 0 else tail
    if order == VALUE:
        return x * distribution
    if order == DERIVATIVE:
        return distribution + x * density
    return 2 * density + abs(x) * density_slope


def _cauchy_derivative(x: float) -> mpf:
    """g'(x): of F(-a) and a F'(a) a part in a^2 is left, and as many digits cancel."""
    with mp.workprec(mp.prec + max(0, 2 * math.frexp(x)[1])):
        tail, density, _ = _tail.__wrapped__("cauchy", abs(x))
        return (1 - tail if x > 0 else tail) + x * density


def second_derivative_terms(gate: str, x: float) -> mpf:
    """2 F'(x) + |x F''(x)|, the size of what is added up to g''(x)."""
    _, density, density_slope = _tail(gate, abs(x))
    return 2 * density + abs(x * density_slope)


ROOTLESS = {"cauchy"}  # g' > 0


@cache
def root(gate: str) -> mpf:
    """Where g' = 0."""
    return mp.findroot(lambda x: _derivative_near_root(gate, x), -1)


def _derivative_near_root(gate: str, x: mpf) -> mpf:
    """g'(x) for x < 0, of any precision."""
    if gate == "normal":
        return mp.ncdf(x) + x * mp.npdf(x)
    if gate == "laplace":
        return (1 + x) * mp.exp(x) / 2
    k1, k3 = CUBICS[gate]
    e = mp.exp(k1 * x + k3 * x**3)
    return e / (1 + e) * (1 + x * (k1 + 3 * k3 * x**2) / (1 + e))


@cache
def _taylor_at_root(gate: str) -> np.ndarray:
    c = mp.taylor(lambda x: _derivative_near_root(gate, x), root(gate), 14)
    return np.array([0.0, *map(float, c[1:])])


def reference(gate: str, order: int, x: np.ndarray) -> np.ndarray:
    """g or g' in float64 for float32 numbers x, with a relative error below 1e-12."""
    if gate == "cauchy":
        return _cauchy_reference(order, x)
    if gate == "normal":
        distribution = ndtr(x)
        if order == VALUE:
            return x * distribution
        density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    elif gate == "laplace":
        density = np.exp(-np.abs(x)) / 2
        distribution = np.where(x < 0, density, 1 - density)
        if order == VALUE:
            return x * distribution
    else:
        k1, k3 = map(float, CUBICS[gate])
        v = x * (k1 + k3 * x * x)
        distribution = expit(v)
        if order == VALUE:
            return x * distribution
        density = (k1 + 3 * k3 * x * x) * distribution * expit(-v)
    y = distribution + x * density
    # These cancel near the root, where a series in the exact distance from it does not.
    near = np.flatnonzero(np.abs(x - float(root(gate))) < 2**-5)
    high = float(root(gate))
    low = float(root(gate) - high)
    y[near] = np.polynomial.polynomial.polyval(x[near] - high - low, _taylor_at_root(gate))
    return y


def _cauchy_reference(order: int, x: np.ndarray) -> np.ndarray:
    a = np.abs(x)
    tail = np.arctan2(1, a) / np.pi
    if order == VALUE:
        return np.where(x > 0, x * (1 - tail), x * tail)
    # F(-a) - a F'(a), and where that would cancel its series in 1/a.
    q = 1 / np.maximum(a, 8)
    k = np.arange(1, 16)
    terms = (-1.0) ** (k + 1) * 2 * k / (2 * k + 1) / np.pi
    series = q**3 * np.polynomial.polynomial.polyval(q * q, terms)
    d = np.where(a > 8, series, tail - a / (np.pi * (1 + np.minimum(a, 8) ** 2)))
    return np.where(x > 0, 1 - d, d)


def ulp(y: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The spacing of `dtype` at the float64 numbers y, which are normal."""
    precision, smallest_exponent = FORMATS[dtype]
    power_below = (y.view(np.int64) & 0x7FF0000000000000).view(np.float64)
    return np.maximum(power_below, 2.0**smallest_exponent) * 2.0 ** (1 - precision)


def ulp_errors(y: Tensor, expected: np.ndarray) -> np.ndarray:
    """|y - expected| in units of the last place of y's dtype."""
    return np.abs(y.cpu().double().numpy() - expected) / ulp(expected, y.dtype)


def _last_place(y: mpf, dtype: torch.dtype) -> int:
    """The exponent of the unit in the last place."""
    precision, smallest_exponent = FORMATS[dtype]
    return int(max(mp.mag(y) - 1, smallest_exponent)) - precision + 1


def exact_ulp(y: mpf, dtype: torch.dtype) -> mpf:
    return mp.ldexp(1, _last_place(y, dtype))


def exact_ulp_errors(
    y: Tensor, expected: Sequence[mpf], magnitude: Sequence[mpf] | None = None
) -> np.ndarray:
    """The same for mpf; the unit is the last place of `magnitude` where one is given."""
    units = [exact_ulp(size, y.dtype) for size in magnitude or expected]
    triples = zip(y.cpu().double().tolist(), expected, units, strict=True)
    return np.array([float(abs(number - e) / unit) for number, e, unit in triples])


def correctly_rounded(y: mpf, dtype: torch.dtype) -> float:
    """y to nearest, ties to even, in integer arithmetic; subnormals and overflow as in IEEE 754."""
    precision, smallest_exponent = FORMATS[dtype]
    sign = -1.0 if y < 0 else 1.0
    if mp.mag(y) < smallest_exponent - precision:  # also zero
        return sign * 0.0
    mantissa, exponent = abs(y).man_exp
    last_place = _last_place(y, dtype)
    dropped = last_place - exponent
    if dropped > 0:
        kept, rest = divmod(mantissa, 1 << dropped)
        half = 1 << (dropped - 1)
        kept += rest > half or (rest == half and kept % 2)
    else:
        kept = mantissa << -dropped
    rounded = float(mp.ldexp(kept, last_place))
    return sign * (rounded if rounded <= torch.finfo(dtype).max else np.inf)


def every_16_bit_input(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


@cache
def correctly_rounded_results(gate: str, order: int, dtype: torch.dtype) -> Tensor:
    """For every input of a 16-bit dtype; NaN where the input is not finite.

    From ``reference`` where its error cannot turn the rounding, and near ties from ``exact``.
    """
    x = every_16_bit_input(dtype)
    numbers = torch.where(x.isfinite(), x, torch.nan).double()
    y = reference(gate, order, numbers.numpy())
    low, high = (torch.from_numpy(nearest(y * (1 + e), dtype)) for e in (-1e-10, 1e-10))
    for i in torch.nonzero((low != high) & x.isfinite())[:, 0].tolist():
        low[i] = correctly_rounded(exact(gate, order, x[i].item()), dtype)
    if order == DERIVATIVE and gate not in ROOTLESS:  # a sum of 0 and -0 has lost the sign
        low[(low == 0) & (numbers < float(root(gate)))] = -0.0
    return low.to(dtype)


def nearest(y: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """To the precision of dtype, by float64's own rounding to whole numbers, ties to even."""
    unit = ulp(y, dtype)
    rounded = np.round(y / unit) * unit
    return np.where(np.abs(rounded) > torch.finfo(dtype).max, np.copysign(np.inf, y), rounded)
