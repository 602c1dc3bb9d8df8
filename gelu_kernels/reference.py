"""The gates in plain PyTorch: the oracle that the kernels are tested against.

A gate is x F(x), F a distribution function. Autograd differentiates these formulas to any
order. They are meant for float64, where a value's error is a few ULP for |x| < 1 and grows with
|log F(x)| in the left tail, which has no cancellation; ``gelu`` takes any floating dtype.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gelu_kernels import _C

# F of each gate.
DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: torch.special.erfc(x * -math.sqrt(0.5)) / 2,
    # (1 + tanh(u)) / 2 = sigmoid(2 u), which keeps the tail that 1 + tanh(u) cancels away.
    "normal_tanh": lambda x: torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "logistic_1702": lambda x: torch.sigmoid(1.702 * x),
    "logistic": torch.sigmoid,
    # As 1/2 - sign(x) expm1(-|x|)/2 has it, but with the gradient F'(0) = 1/2 at 0.
    "laplace": lambda x: (torch.exp(x - torch.relu(x)) - torch.expm1(-torch.relu(x))) / 2,
    # 1/2 + atan(x)/pi is the angle of the point (-x, 1), whose tail does not cancel.
    "cauchy": lambda x: torch.atan2(torch.ones_like(x), -x) / math.pi,
}


def normal(x: Tensor) -> Tensor:
    """x Phi(x), Phi the standard normal distribution: the GELU."""
    return _gate(x, DISTRIBUTIONS["normal"])


def normal_tanh(x: Tensor) -> Tensor:
    """x (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3)."""
    return _gate(x, DISTRIBUTIONS["normal_tanh"])


def logistic_1702(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x)."""
    return _gate(x, DISTRIBUTIONS["logistic_1702"])


def logistic(x: Tensor) -> Tensor:
    """x sigmoid(x): the SiLU."""
    return _gate(x, DISTRIBUTIONS["logistic"])


def laplace(x: Tensor) -> Tensor:
    """x F(x), F the Laplace distribution, e^x/2 for x < 0 and 1 - e^-x/2 for x > 0: the LaLU."""
    return _gate(x, DISTRIBUTIONS["laplace"])


def cauchy(x: Tensor) -> Tensor:
    """x (1/2 + atan(x)/pi)."""
    return _gate(x, DISTRIBUTIONS["cauchy"], bound=1e75)


def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """torch.clamp, with a gradient of 1 at the limits, where torch 2.15 gives 0."""
    x = x if min is None else torch.where(x < min, min, x)
    return x if max is None else torch.where(x > max, max, x)


def _gate(x: Tensor, distribution: Callable[[Tensor], Tensor], bound: float = 1e3) -> Tensor:
    # Beyond the bound F is 0 or 1, or x F(x) its limit. A finite factor there keeps 0 * inf out of
    # value and gradient.
    x = clamp(x, min=-bound)
    return x * distribution(clamp(x, max=bound))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """What :func:`gelu_kernels.functional.gelu` approximates: computed in float64, then rounded."""
    gate = next(gate for gate, name, _ in _C.gates() if name == approximate)
    return globals()[gate](x.double()).to(x.dtype)
