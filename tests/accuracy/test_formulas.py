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
from gelu_kernels.formulas import arithmetic, normal
from tests import stub_driver
from tests.oracles import oracle
from tests.oracles.oracle import DERIVATIVE, SECOND_DERIVATIVE, VALUE

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")

ORDERS = {"value": VALUE, "derivative": DERIVATIVE, "second_derivative": SECOND_DERIVATIVE}
WORDS = {name for name, _ in getmembers(arithmetic, isfunction)}


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


@pytest.mark.parametrize("order", ORDERS)
def test_bits_of_float32(gate: str, order: str) -> None:
    """NumPy's fma rounds twice, which no number here shows."""
    x = torch.cat([3 * torch.randn(100_000), torch.arange(-120.0, 120, 2**-8)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])
    expected = oracle.evaluate(gate, ORDERS[order], x)
    assert torch.equal(evaluate(gate, order, x).nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_derivative_of_every_16_bit_input(gate: str, dtype: torch.dtype) -> None:
    """It is rounded to even, as torch rounds."""
    x = oracle.every_16_bit_input(dtype)
    expected = oracle.evaluate(gate, DERIVATIVE, x)
    actual = evaluate(gate, "derivative", x).to(dtype)
    assert torch.equal(actual.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_value_of_every_16_bit_input(gate: str, dtype: torch.dtype) -> None:
    """Ties go up on a CPU. The GPU's conversion, to even, gives the same of break_tie(y)."""
    x = oracle.every_16_bit_input(dtype)
    y = evaluate(gate, "value", x)
    if dtype == torch.bfloat16:
        y += 2.0**-149
    elif (ties := formulas.of(gate, arithmetic).ties) != "none":
        y += 1.5 * 2.0**-48
        if ties == "any":
            u = y.clamp(max=2.0**17).view(torch.int32)
            y = ((u + (u >> 31)) | 1).view(torch.float32)
    actual, expected = y.to(dtype), oracle.evaluate(gate, VALUE, x)
    assert torch.equal(actual.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize(
    ("order", "form"), [("value", "exp2_"), ("derivative", "exp2_"), ("derivative", "")]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_ends_in_a_zero_beside_any_factor(
    gate: str, dtype: torch.dtype, order: str, form: str
) -> None:
    """Fused code multiplies a result before it is rounded, and so do kernels a derivative. Cauchy's
    falls off like a power of x."""
    far = -torch.inf if gate in oracle.ROOTLESS else -1000.0
    end = evaluate(gate, order, torch.tensor([far], dtype=dtype), form)
    if gate in oracle.ROOTLESS and order == "value":
        assert math.isclose(end.item(), -1 / math.pi, rel_tol=1e-6)
    else:
        assert (end * torch.finfo(dtype).max).to(dtype) == 0


@pytest.mark.parametrize("name", ["tail", "density"])
def test_tail_and_density(gate: str, name: str) -> None:
    """F(-a) and F'(a) in float32, within 4 ULP where they are normal numbers; 0 at infinity."""
    own = formulas.of(gate, arithmetic)
    a = np.concatenate([np.linspace(0, 16, 2000), np.geomspace(1e-3, 1e3, 500)]).astype(np.float32)
    pairs = [oracle.distribution(gate, -oracle.mpf(float(x))) for x in a]
    expected = [pair[name == "density"] for pair in pairs]
    with np.errstate(all="ignore"):
        found = getattr(own, name)(a, own.constants["fp32"])
        ends = np.array([np.inf, np.nan], np.float32)
        at_ends = getattr(own, name)(ends, own.constants["fp32"])
    errors = oracle.exact_ulp_errors(torch.from_numpy(found), expected)
    is_normal = np.array([float(e) >= 2.0**-126 for e in expected])
    assert is_normal.sum() > 1000 and errors[is_normal].max() <= 4
    assert at_ends[0] == 0 and np.isnan(at_ends[1])


def test_inductor_has_every_word() -> None:
    used = WORDS - {"magnitude_or_limit"}  # of in_tail: Inductor has no random masks
    assert used <= {name for name, _ in getmembers(of_inductor, isfunction)}


@needs_triton
def test_triton_has_every_word() -> None:
    from gelu_kernels.triton_kernels import arithmetic as of_triton

    assert set(vars(of_triton)) >= WORDS


def test_words_can_be_exchanged(gate: str) -> None:
    other = ModuleType("other")
    vars(other).update(vars(arithmetic), positive_part=lambda x: x + 1000)
    compiled = []
    own = formulas.of(gate, other, lambda function: compiled.append(function) or function)
    assert own.value in compiled and len(set(compiled)) == len(compiled)
    assert own.value(np.zeros(1, np.float32), own.constants["fp32"]) == 1000


CACHE_KEY = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
import triton
from gelu_kernels import formulas
from gelu_kernels.triton_kernels import arithmetic
name = "gelu_kernels.formulas.normal"
spec = spec_from_file_location(name, sys.argv[1])
sys.modules[name] = module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
print(formulas.of("normal", arithmetic, triton.jit).value.cache_key)
"""


@needs_triton
def test_triton_compiles_a_changed_formula_anew(tmp_path: Path) -> None:
    """By the key of its cache, which is of the functions that a function calls as well."""
    text = Path(normal.__file__).read_text()
    assert text.count("s_low = fma(a, a, negated(s))") == 1
    keys = []
    for source in (text, text, text.replace("s_low = fma(a, a, negated(s))", "s_low = a")):
        path = tmp_path / "normal.py"
        path.write_text(source)
        keys.append(stub_driver.run("-c", CACHE_KEY, str(path)).stdout)
    assert keys[0] and keys[0] == keys[1] != keys[2]
