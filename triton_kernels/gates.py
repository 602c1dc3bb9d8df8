"""The gates in Triton: gelu_kernels/formulas in the primitives of ``arithmetic``."""

from types import SimpleNamespace

import triton
import triton.language as tl

from gelu_kernels import formulas
from gelu_kernels.formulas.coefficients import Constants, Polynomial
from gelu_kernels.triton_kernels import arithmetic
from gelu_kernels.triton_kernels.soi.draw import drawing


def functions(gate: str) -> SimpleNamespace:
    return formulas.of(gate, arithmetic, triton.jit)


def function(gate: str, order: str, constants: Constants) -> triton.JITFunction | None:
    """One of these, or with ``"draw"`` the kernels of an SOI map that have it compiled in."""
    if order != "draw":
        return getattr(functions(gate), order)
    return drawing(functions(gate), constants) if constants.backend == "cuda" else None


LARGEST = {"fp16": 65504.0, "bf16": 2.0**128 - 2.0**120}

# The last float that is stored as -0, where floats as integers ascend from -0.
LAST_ZEROS = {"fp16": 0x33000000 - 2**31, "bf16": 0x8000 - 2**31}


def constants(gate: str, precision: str, backend: str, **others: object) -> Constants:
    """What the functions of a gate need to know about the precision and the target, for the
    compiler."""
    own = functions(gate)
    values = vars(own.constants[precision])
    if backend != "interpreter":  # else they cannot be arguments of functions
        values = {k: tl.constexpr(v) if isinstance(v, Polynomial) else v for k, v in values.items()}
    return Constants(
        **values,
        ties=own.ties,
        left_limit=own.left_limit,
        last_zero=LAST_ZEROS.get(precision),
        largest=LARGEST.get(precision),
        backend=backend,
        # Of a loop over tiles: on NVIDIA's GPUs two tiles are copied into shared memory ahead. On
        # AMD's, scalar registers would not suffice.
        stages=3 if backend == "cuda" else 1,
        **others,
    )
