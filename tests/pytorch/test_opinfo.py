"""Our gelu on the sample inputs of PyTorch's own OpInfo for gelu."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gelu_kernels import functional
from tests.cases import each
from tests.oracles import oracle, sweeps
from tests.oracles.oracle import DERIVATIVE, VALUE

pytest.importorskip("expecttest", reason="needs expecttest, which torch's descriptions import")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

(GELU,) = (op for op in op_db if op.name == "nn.functional.gelu")
DTYPES = sorted(GELU.supported_dtypes("cpu"), key=str)
IDENTIFIERS = {"none": "normal", "tanh": "normal_tanh"}


def samples(dtype: torch.dtype, requires_grad: bool) -> list[tuple[Tensor, str]]:
    """Each sample twice: as it is, and in memory with gaps."""
    found = []
    for sample in GELU.sample_inputs("cpu", dtype, requires_grad=requires_grad):
        for s in (sample, sample.noncontiguous()):
            assert not s.args and set(s.kwargs) == {"approximate"}
            found.append((s.input, s.kwargs["approximate"]))
    return found


def errors(result: Tensor, order: int, x: Tensor, approximate: str) -> np.ndarray:
    """In ULP, against 60 digits."""
    exact = [oracle.exact(IDENTIFIERS[approximate], order, v) for v in x.flatten().tolist()]
    return oracle.exact_ulp_errors(result.detach().flatten(), exact)


def test_there_are_samples() -> None:
    assert set(DTYPES) == set(oracle.FORMATS)
    assert {approximate for _, approximate in samples(torch.float32, False)} == set(IDENTIFIERS)


@each(
    dtype=DTYPES,
    requires_grad=[False, True],
    function=[functional.gelu, torch.ops.gelu_kernels.fused_gelu],
)
def test_samples(dtype: torch.dtype, requires_grad: bool, function) -> None:
    for x, approximate in samples(dtype, requires_grad):
        y = function(x, approximate=approximate)
        expected = torch.nn.functional.gelu(x, approximate=approximate)
        assert (y.shape, y.stride(), y.dtype) == (expected.shape, expected.stride(), x.dtype)
        assert y.requires_grad == requires_grad
        assert errors(y, VALUE, x, approximate).max() <= sweeps.bound(VALUE, dtype)
        if requires_grad:
            (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
            assert errors(dx, DERIVATIVE, x, approximate).max() <= sweeps.bound(DERIVATIVE, dtype)


def test_derivatives_of_samples() -> None:
    """In every mode of differentiation that PyTorch lists for its own operator."""
    assert GELU.supports_forward_ad and GELU.supports_gradgrad and GELU.supports_fwgrad_bwgrad
    for x, approximate in samples(torch.float64, True)[:4]:

        def gelu(x: Tensor, approximate: str = approximate) -> Tensor:
            return functional.gelu(x, approximate=approximate)

        assert gradcheck(gelu, x, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert gradgradcheck(gelu, x, check_fwd_over_rev=True, fast_mode=True)


def test_error_inputs() -> None:
    """Ours are ValueError where PyTorch raises RuntimeError."""
    for error in GELU.error_inputs("cpu"):
        sample = error.sample_input
        with pytest.raises(ValueError, match=r"^gelu\(\): approximate must be one of"):
            functional.gelu(sample.input, *sample.args, **sample.kwargs)
