"""Errors over x, in units in the last place: ours and PyTorch's, against mpmath."""

import mpmath
import torch
import torch.nn.functional as F
from torch import Tensor

from gelu_kernels import functional

X_MIN, X_MAX, POINTS = -14.0, 6.0, 1201
DIGITS = 40


def exact(x: Tensor) -> list[mpmath.mpf]:
    with mpmath.workdps(DIGITS):
        return [mpmath.mpf(v) * mpmath.ncdf(v) for v in x.tolist()]


def ulp_errors(y: Tensor, right: list[mpmath.mpf]) -> list[float]:
    """Those of a float's neighbours at the exact value; subnormal numbers have the smallest."""
    tiny = torch.finfo(y.dtype).tiny
    eps = torch.finfo(y.dtype).eps
    errors = []
    with mpmath.workdps(DIGITS):
        for result, value in zip(y.double().tolist(), right, strict=True):
            exponent = mpmath.floor(mpmath.log(max(abs(value), tiny), 2))
            errors.append(
                float(abs(mpmath.mpf(result) - value) / (eps * mpmath.mpf(2) ** exponent))
            )
    return errors


def measure(dtype: torch.dtype, device: str) -> dict[str, list[float]]:
    # An even step would fall on numbers that are exact in 16 bits.
    x = torch.linspace(X_MIN, X_MAX, POINTS, dtype=torch.float64).to(dtype).to(device)
    right = exact(x.double())
    return {
        "x": x.tolist(),
        "gelu_kernels": ulp_errors(functional.gelu(x), right),
        "F.gelu": ulp_errors(F.gelu(x), right),
    }
