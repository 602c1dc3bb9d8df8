"""No number of a gate is magic: the fitting programs write these files, in C++ and in Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from fit import minimax
from tests import ROOT

HEADERS = sorted((ROOT / "csrc" / "gates" / "coefficients").glob("*.h"))
MODULES = ROOT / "gelu_kernels" / "formulas" / "coefficients"

# NumPy, libm and OpenBLAS choose their code by processor. These variables select the code for an
# old one without FMA.
VECTORS = [feature for feature in __cpu_dispatch__ if __cpu_features__[feature]]
PROCESSORS = {
    "this": {},
    "sse": {
        "NPY_DISABLE_CPU_FEATURES": " ".join(VECTORS),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX2_Usable,-FMA_Usable",
        "OPENBLAS_CORETYPE": "Nehalem",
        "OPENBLAS_NUM_THREADS": "2",
    },
}

RUN = """
import importlib, os, pathlib, sys
from numpy._core._multiarray_umath import __cpu_features__
for feature in os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split():
    assert not __cpu_features__[feature], f"NumPy still uses {feature}"
from fit import coefficients
coefficients.ROOT = pathlib.Path(sys.argv[1])
importlib.import_module(sys.argv[2]).main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_fit_reproduces(header: Path, processor: str, tmp_path: Path) -> None:
    written_by = re.match(r"// Written by `python -m (fit\.\w+)`", header.read_text())
    assert written_by, f"{header.name} does not name its program"
    command = [sys.executable, "-c", RUN, tmp_path, written_by[1]]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | PROCESSORS[processor])
    for path in (header, MODULES / f"{header.stem}.py"):
        assert (tmp_path / path.relative_to(ROOT)).read_text() == path.read_text()


def test_minimax_of_a_power() -> None:
    """Chebyshev: on [-1, 1] the best polynomial below x^n is 2^(1-n) T_n(x) off."""
    for degree in (2, 5, 12):
        x = minimax.chebyshev_points(-1.0, 1.0, 20 * degree + 1)  # the extrema of T_n among them
        power, one = x**degree, np.full_like(x, mpmath.mpf(1))
        basis = minimax.powers(x, range(degree))
        c, slack = minimax.fit(basis, power, power, one, minimax.to_float64)
        assert slack == -(2.0 ** (1 - degree))
        chebyshev = np.polynomial.chebyshev.cheb2poly([0] * degree + [1])
        np.testing.assert_allclose(c, -chebyshev[:-1] / chebyshev[-1], rtol=0, atol=1e-30)


def test_every_module_has_its_header() -> None:
    modules = {path.stem for path in MODULES.glob("*.py")} - {"__init__"}
    assert modules == {path.stem for path in HEADERS}
