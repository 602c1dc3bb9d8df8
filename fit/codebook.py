"""Fits the codebooks in which backward keeps the derivative of a gate, in 8 and in 4 bits.

A codebook is uniform: a code stands for (code - zero)/levels, so that 0 and 1 are exact. The
highest code stands for NaN. The others cover every derivative and its two neighbours, so stochastic
rounding never saturates and stays unbiased.
"""

import mpmath
import numpy as np

from fit.coefficients import Constants, write

# F of each gate.
DISTRIBUTIONS = {
    "normal": mpmath.ncdf,
    "normal_tanh": lambda x: logistic(mpmath.sqrt(8 / mpmath.pi) * (x + 0.044715 * x**3)),
    "logistic_1702": lambda x: logistic(1.702 * x),
    "logistic": lambda x: logistic(x),
    "laplace": lambda x: mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2,
    "cauchy": lambda x: mpmath.mpf(1) / 2 + mpmath.atan(x) / mpmath.pi,
}


def logistic(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


def least_derivative(gate: str) -> mpmath.mpf:
    """The infimum of g' for g(x) = x F(x): at most 0, the limit of g' at minus infinity.

    The supremum is 1 minus it, as g'(-x) = 1 - g'(x).
    """

    def derivative(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.diff(lambda x: x * DISTRIBUTIONS[gate](x), x)

    at = min(mpmath.linspace(-8, -0.125, 64), key=derivative)
    # The error of a minimum is the square of the step's: 1e-7 here.
    at = min(mpmath.linspace(at - 0.125, at + 0.125, 1001), key=derivative)
    return min(mpmath.mpf(0), derivative(at))


def fit(bits: int, least: mpmath.mpf) -> tuple[int, int]:
    """The levels and the zero with the smallest step; both are integers, so 0 and 1 have codes."""
    highest = 2**bits - 2
    for levels in range(highest, 0, -1):
        zero = int(mpmath.ceil(-least * levels))
        reaches = zero + (1 - least) * levels <= highest
        # A kernel multiplies by 1/levels.
        one_is_exact = all(real(levels) * real(1 / levels) == 1 for real in (np.float32, float))
        if reaches and one_is_exact:
            return levels, zero
    raise ValueError(f"no codebook of {bits} bits")


def main() -> None:
    least = min(map(least_derivative, DISTRIBUTIONS))
    codebooks = []
    for bits in (8, 4):
        levels, zero = fit(bits, least)
        nan = 2**bits - 1
        comment = (
            f"Of derivatives from {float(least):.4f} to {float(1 - least):.4f}; codes are for "
            f"{-zero / levels:.4f} to {(nan - 1 - zero) / levels:.4f}, half a step is "
            f"{0.5 / levels:.6f}."
        )
        numbers = {"levels": levels, "zero": zero, "nan": nan}
        codebooks.append(Constants("codebook", f"{bits}bit", numbers, "float", comment))
    write("fit.codebook", codebooks)


if __name__ == "__main__":
    main()
