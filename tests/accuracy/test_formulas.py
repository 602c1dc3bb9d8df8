"""The formulas in Python: NumPy evaluates them to the bits of the kernels, which are in C++."""

import math
from importlib import import_module
from importlib.util import find_spec
from inspect import getmembers, isfunction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from gelu_kernels import formulas
from gelu_kernels.compile import arithmetic as of_inductor
from gelu_kernels.formulas import arithmetic
from tests import bits, stub_driver
from tests.cases import each
from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, SECOND_DERIVATIVE, VALUE
from tests.oracles.sweeps import HALF

ORDERS = {"value": VALUE, "derivative": DERIVATIVE, "second_derivative": SECOND_DERIVATIVE}


def evaluate(gate: str, order: str, x: Tensor, form: str = "") -> Tensor:
    """In the precision of x."""
    module = import_module(f"gelu_kernels.formulas.{gate}")
    precision = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[x.dtype]
    if order == "second_derivative":
        precision = "fp32"
    with np.errstate(all="ignore"):
        return torch.from_numpy(
            getattr(module, order)(x.float().numpy(), module.constants[form + precision])
        )


def test_bits_of_float32(gate: str) -> None:
    """NumPy's fma rounds twice, which no number here shows."""
    x = torch.cat([3 * torch.randn(100_000), torch.arange(-120.0, 120, 2**-8)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])
    for name, order in ORDERS.items():
        assert bits.differing(evaluate(gate, name, x), oracle.evaluate(gate, order, x)) == 0, name


def test_derivative_of_every_16_bit_input(gate: str) -> None:
    """It is rounded to even, as torch rounds."""
    for dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        actual = evaluate(gate, "derivative", x).to(dtype)
        assert bits.differing(actual, oracle.evaluate(gate, DERIVATIVE, x)) == 0, dtype


def test_value_of_every_16_bit_input(gate: str) -> None:
    """Ties go up on a CPU. The GPU's conversion, to even, gives the same of break_tie(y)."""
    ties = formulas.of(gate, arithmetic).ties
    for dtype in HALF:
        x = oracle.every_16_bit_input(dtype)
        y = evaluate(gate, "value", x)
        if dtype == torch.bfloat16:
            y += 2.0**-149
        elif ties != "none":
            y += 1.5 * 2.0**-48
            if ties == "any":
                u = y.clamp(max=2.0**17).view(torch.int32)
                y = ((u + (u >> 31)) | 1).view(torch.float32)
        expected = oracle.evaluate(gate, VALUE, x)
        assert torch.equal(y.to(dtype).nan_to_num(7), expected.nan_to_num(7)), dtype


@each(dtype=HALF, kind=[("value", "exp2_"), ("derivative", "exp2_"), ("derivative", "")])
def test_ends_in_a_zero_beside_any_factor(dtype: torch.dtype, kind: tuple, gate: str) -> None:
    """Fused code multiplies a result before it is rounded, and so do kernels a derivative. Cauchy's
    falls off like a power of x."""
    far = -torch.inf if gate in oracle.ROOTLESS else -1000.0
    order, form = kind
    end = evaluate(gate, order, torch.tensor([far], dtype=dtype), form)
    if gate in oracle.ROOTLESS and order == "value":
        assert math.isclose(end.item(), -1 / math.pi, rel_tol=1e-6)
    else:
        assert (end * torch.finfo(dtype).max).to(dtype) == 0


def test_tail_and_density(gate: str) -> None:
    """F(-a) and F'(a) in float32, within 4 ULP where they are normal numbers; 0 at infinity."""
    own = formulas.of(gate, arithmetic)
    a = np.concatenate([np.linspace(0, 16, 2000), np.geomspace(1e-3, 1e3, 500)]).astype(np.float32)
    pairs = [oracle.distribution(gate, -oracle.mpf(float(x))) for x in a]
    for place, function in enumerate((own.tail, own.density)):
        expected = [pair[place] for pair in pairs]
        with np.errstate(all="ignore"):
            found = function(a, own.constants["fp32"])
            ends = function(np.array([np.inf, np.nan], np.float32), own.constants["fp32"])
        errors = oracle.exact_ulp_errors(torch.from_numpy(found), expected)
        is_normal = np.array([float(e) >= 2.0**-126 for e in expected])
        assert is_normal.sum() > 1000 and errors[is_normal].max() <= 4
        assert ends[0] == 0 and np.isnan(ends[1])


def test_inductor_and_triton_have_every_word() -> None:
    words = {name for name, _ in getmembers(arithmetic, isfunction)}
    estimates = {f"approximate_{name}" for name in ("exp2", "logistic", "reciprocal")}
    used = words - {"absolute", "at_most", "magnitude_or_limit"} - estimates  # of random masks
    assert used <= {name for name, _ in getmembers(of_inductor, isfunction)}
    if find_spec("triton"):
        assert words <= {*vars(import_module("gelu_kernels.triton_kernels.arithmetic"))}


def test_words_can_be_exchanged(gate: str) -> None:
    other = ModuleType("other")
    vars(other).update(vars(arithmetic), positive_part=lambda x: x + 1000)
    compiled = []
    own = formulas.of(gate, other, lambda function: compiled.append(function) or function)
    assert own.value in compiled and len(set(compiled)) == len(compiled)
    assert own.value(np.zeros(1, np.float32), own.constants["fp32"]) == 1000


CACHE_KEYS = """
import linecache, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
import triton
from gelu_kernels import formulas
from gelu_kernels.triton_kernels import arithmetic
name = "gelu_kernels.formulas.normal"
path = Path(sys.argv[1])
text = Path(formulas.__file__).with_name("normal.py").read_text()
for changed in ("s_low = fma(a, a, negated(s))",) * 2 + ("s_low = a",):
    path.write_text(text.replace("s_low = fma(a, a, negated(s))", changed))
    spec = spec_from_file_location(name, path)
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    linecache.clearcache()
    formulas.of.cache_clear()
    print(formulas.of("normal", arithmetic, triton.jit).value.cache_key)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_triton_compiles_a_changed_formula_anew(tmp_path: Path) -> None:
    """By the key of its cache, which is of the functions that a function calls as well."""
    result = stub_driver.run("-B", "-c", CACHE_KEYS, str(tmp_path / "normal.py"))
    first, same, changed = result.stdout.split()
    assert first == same != changed
