"""The largest errors of the gates over many inputs, in units of the last place."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gelu_kernels.operators.table import core
from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, FORMATS, SECOND_DERIVATIVE, VALUE, mpf

WIDE = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
ORDERS = {VALUE: "value", DERIVATIVE: "derivative"}


def bound(order: int, dtype: torch.dtype) -> float:
    """Of the errors that the table of operators admits."""
    operators = {
        VALUE: "gate_forward",
        DERIVATIVE: "gate_backward",
        SECOND_DERIVATIVE: "gate_double_backward",
    }
    return core(operators[order]).tolerance(dtype)


def float32_inputs(spacing: int = 1) -> Iterator[np.ndarray]:
    """More than 5e7 numbers: each one in [-16, -1/4], the root of the derivative and most of the
    left tail among them; each third one to -128, where every gate has underflowed; each seventh on
    the right; and each 257th of all. `spacing` leaves out some of each region.
    """
    quarter, sixteen, end = (int(np.float32(x).view(np.uint32)) for x in (0.25, 16, 128))
    sign = 1 << 31
    for region in (
        range(sign + quarter, sign + sixteen + 1),
        range(sign + sixteen, sign + end, 3),
        range(quarter, sixteen, 7),
        range(0, 1 << 32, 257),
    ):
        step = region.step * spacing
        for start in range(region.start, region.stop, step << 18):
            stop = min(start + (step << 18), region.stop)
            x = np.arange(start, stop, step, dtype=np.uint32).view(np.float32)
            yield x[np.isfinite(x)]


@dataclass
class Largest:
    """The largest error so far, and where it was met."""

    error: float = 0.0
    x: float = 0.0
    count: int = 0

    def update(self, errors: np.ndarray, x: np.ndarray) -> None:
        assert not np.isnan(errors).any()
        worst = int(np.argmax(errors))
        self.count += errors.size
        if errors[worst] > self.error:
            self.error, self.x = float(errors[worst]), float(x[worst])

    def __str__(self) -> str:
        return f"{self.error:.3f} ULP at x = {self.x:.9g} of {self.count} inputs"


def float32_sweep(gate: str, order: int, device: str, spacing: int = 1) -> Largest:
    largest = Largest()
    for x in float32_inputs(spacing):
        y = oracle.evaluate(gate, order, torch.from_numpy(x).to(device))
        largest.update(oracle.ulp_errors(y, oracle.reference(gate, order, x.astype(float))), x)
    return largest


@cache
def left_end(gate: str, dtype: torch.dtype) -> float:
    """The value underflows to zero between this whole number and its predecessor; 1024 if never."""
    precision, smallest_exponent = FORMATS[dtype]
    half = mpf(2) ** (smallest_exponent - precision)
    return next((a for a in range(1, 1024) if -oracle.exact(gate, VALUE, -float(a)) < half), 1024)


def points(gate: str, dtype: torch.dtype) -> Tensor:
    """Some 3000 numbers: of all magnitudes, down both tails, and close to the derivative's root."""
    end, precision = left_end(gate, dtype), FORMATS[dtype][0]
    magnitudes = torch.logspace(-300, 300, 300, dtype=torch.float64).clamp(
        min=torch.finfo(dtype).smallest_normal, max=torch.finfo(dtype).max
    )
    tail = torch.rand(1200, dtype=torch.float64) * end
    around_zero = torch.randn(800, dtype=torch.float64)
    root = -1.0 if gate in oracle.ROOTLESS else float(oracle.root(gate))
    distance = torch.logspace(-precision, -4, 200, base=2, dtype=torch.float64)
    close = torch.ldexp(torch.arange(-8.0, 9, dtype=torch.float64), torch.tensor(-precision))
    near_root = [root - distance, root + distance, root + close]
    x = torch.cat([magnitudes, -magnitudes, -tail, tail[:200], around_zero, *near_root])
    return x.to(dtype)


def mpmath_sweep(gate: str, order: int, dtype: torch.dtype, device: str) -> Largest:
    """Errors of the second derivative are in ULP of |2 F'| + |x F''|, the magnitudes of its terms:
    they are relative errors except near the roots of g'', where the terms cancel."""
    x = points(gate, dtype)
    expected = [oracle.exact(gate, order, value) for value in x.tolist()]
    magnitude = None
    if order == SECOND_DERIVATIVE:
        magnitude = [oracle.second_derivative_terms(gate, value) for value in x.tolist()]
    largest = Largest()
    y = oracle.evaluate(gate, order, x.to(device))
    largest.update(oracle.exact_ulp_errors(y, expected, magnitude), x.double().numpy())
    return largest


def second_derivative_sweep(gate: str, dtype: torch.dtype, device: str) -> Largest:
    return mpmath_sweep(gate, SECOND_DERIVATIVE, dtype, device)


def product_sweep(gate: str, dtype: torch.dtype, device: str) -> Largest:
    """The error of g' in dx = dy g', in units of its own last place: what is left of the error of
    dx without half a unit of dx for rounding the product."""
    x = points(gate, dtype)
    x = x[x.abs() < left_end(gate, dtype)]
    dy = torch.ldexp(1 + torch.rand(x.shape), torch.randint(-12, 12, x.shape)).to(dtype)
    dx = torch.ops.gelu_kernels.gate_backward(dy.to(device), x.to(device), None, gate)
    errors = []
    for x_i, dy_i, dx_i in zip(x.tolist(), dy.tolist(), dx.tolist(), strict=True):
        derivative = oracle.exact(gate, DERIVATIVE, x_i)
        error = abs(dx_i - dy_i * derivative) - oracle.exact_ulp(dy_i * derivative, dtype) / 2
        errors.append(float(error / (dy_i * oracle.exact_ulp(derivative, dtype))))
    largest = Largest()
    largest.update(np.array(errors), x.double().numpy())
    return largest


def sums(gate: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x and bias; for 16 bits, every x to where values underflow, with each of 24 biases."""
    x = points(gate, dtype)
    if dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        x = x[~x.isnan()]
    x = x[x.abs() < left_end(gate, dtype)]
    bias = torch.cat([torch.randn(16), torch.randn(8) * 1e-3]).to(dtype)
    return x[:, None].expand(-1, len(bias)).contiguous(), bias


def half_bias_sweep(gate: str, order: int, dtype: torch.dtype, device: str) -> Largest:
    """For 16 bits, of g(s) or g'(s), where s = x + bias in float32. Near its root the derivative
    has an absolute error too: 2^-24, a rounding of numbers near 1 to float32, is taken off."""
    x, bias = sums(gate, dtype)
    y = oracle.evaluate(gate, order, x.to(device), bias.to(device))
    s = (x.float() + bias.float()).flatten().double().numpy()
    expected = oracle.reference(gate, order, s)
    errors = oracle.ulp_errors(y.flatten(), expected)
    if order == DERIVATIVE:
        errors -= 2.0**-24 / oracle.ulp(expected, dtype)
    largest = Largest()
    largest.update(errors, s)
    return largest


def misrounded(gate: str, order: int, dtype: torch.dtype, y: Tensor) -> Tensor:
    """The finite 16-bit inputs whose result is not the correctly rounded one."""
    x = oracle.every_16_bit_input(dtype)
    return x[x.isfinite() & (y.cpu() != oracle.correctly_rounded_results(gate, order, dtype))]
