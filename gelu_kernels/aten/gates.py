"""The gates in ATen terms, for float32 and float64: x F(x), F a distribution function. F has an
absolute error of a few eps."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Gate:
    distribution: Function  # F
    density: Function  # F'
    slope: Function  # F''
    whole: Function | None = None  # x F(x), where ATen has it: exporters know these operators

    def value(self, x: Tensor) -> Tensor:
        return self.whole(x) if self.whole else x * self.distribution(x)

    def derivative(self, x: Tensor) -> Tensor:
        return self.distribution(x) + x * self.density(x)

    def second_derivative(self, x: Tensor) -> Tensor:
        return 2 * self.density(x) + x * self.slope(x)


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(x * x / -2) / math.sqrt(2 * math.pi)


def _logistic(k1: float, k3: float = 0.0, whole: Function | None = None) -> Gate:
    """Of F(x) = sigmoid(v) with v = k1 x + k3 x^3."""

    def exponent(x: Tensor) -> Tensor:
        return x * (k1 + k3 * x * x) if k3 else x if k1 == 1 else k1 * x

    def factors(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """sigmoid(v), its derivative with respect to v, and x bounded, which keeps 0 * inf out:
        beyond the bound the derivative is 0."""
        x = x.clamp(-1e3, 1e3)
        v = exponent(x)
        return torch.sigmoid(v), torch.sigmoid(v) * torch.sigmoid(-v), x

    def density(x: Tensor) -> Tensor:
        _, step, x = factors(x)
        return step * (k1 + 3 * k3 * x * x)

    def slope(x: Tensor) -> Tensor:
        cdf, step, x = factors(x)
        dv = k1 + 3 * k3 * x * x
        return step * ((1 - 2 * cdf) * dv * dv + 6 * k3 * x)

    return Gate(lambda x: torch.sigmoid(exponent(x)), density, slope, whole)


def _laplace_density(x: Tensor) -> Tensor:
    return torch.exp(-x.abs()) / 2


def _laplace_distribution(x: Tensor) -> Tensor:
    tail = _laplace_density(x)
    return torch.where(x < 0, tail, 1 - tail)


def _cauchy_density(x: Tensor) -> Tensor:
    return 1 / (math.pi * (1 + x * x))


def _cauchy_distribution(x: Tensor) -> Tensor:
    """1/2 + atan(x)/pi, which cancels in the left tail: there -atan(1/x)/pi."""
    return torch.where(x < -1, torch.atan(1 / x) / -math.pi, torch.atan(x) / math.pi + 0.5)


_TANH = math.sqrt(8 / math.pi)  # (1 + tanh(u))/2 = sigmoid(2 u)

GATES = {
    "normal": Gate(
        lambda x: torch.erfc(x * -math.sqrt(0.5)) / 2,
        _normal_density,
        lambda x: -x * _normal_density(x),
        whole=F.gelu,
    ),
    "normal_tanh": _logistic(_TANH, 0.044715 * _TANH, whole=partial(F.gelu, approximate="tanh")),
    "logistic_1702": _logistic(1.702),
    "logistic": _logistic(1.0, whole=F.silu),
    "laplace": Gate(
        _laplace_distribution, _laplace_density, lambda x: -torch.sign(x) * _laplace_density(x)
    ),
    "cauchy": Gate(
        _cauchy_distribution,
        _cauchy_density,
        lambda x: -2 * math.pi * x * _cauchy_density(x).square(),
    ),
}
