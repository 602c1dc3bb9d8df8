"""Fits 2^f on |f| <= 1/2, what remains of an exponent after its nearest integer is subtracted."""

import mpmath
import numpy as np

from fit import minimax
from fit.coefficients import Polynomial, write


def fit(degree: int, rounding: minimax.Rounding) -> tuple[list[float], float]:
    """Minimax in relative error; 2^0 = 1 is kept exact."""
    f = minimax.chebyshev_points(-0.5, 0.5, 400)
    target = np.frompyfunc(lambda x: mpmath.mpf(2) ** x, 1, 1)(f)
    c, slack = minimax.fit(
        minimax.powers(f, range(degree + 1)), target, target, target, rounding, {0: 1.0}
    )
    return c, -slack


def main() -> None:
    polynomials = []
    for degree, real, exp2, exp2m1 in (
        (4, "float", "exp2_polynomial_4", None),
        (5, "float", "exp2_polynomial_5", "exp2m1_polynomial_5"),
        (6, "float", "exp2_polynomial_6", "exp2m1_polynomial"),
        (11, "double", "exp2_polynomial", "exp2m1_polynomial"),
    ):
        c, error = fit(degree, minimax.ROUNDINGS[real])
        error = minimax.power_of_two(error)
        for name, target, values in ((exp2, "2^f", c), (exp2m1, "2^f - 1", [0.0, *c[1:]])):
            if name:
                comment = f"{target} for |f| <= 1/2; relative error of 2^f {error}."
                polynomials.append(Polynomial(name, "f", values, comment, real))
    write("fit.exp2", polynomials)


if __name__ == "__main__":
    main()
