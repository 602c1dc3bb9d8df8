"""Written by `python -m fit.codebook`; do not edit."""
# fmt: off
# ruff: noqa

from gelu_kernels.formulas.coefficients import Constants

codebook = {
    "8bit": Constants(levels=201.0, zero=26.0, nan=255.0),
    "4bit": Constants(levels=10.0, zero=2.0, nan=15.0),
}
