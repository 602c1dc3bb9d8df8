"""Each kind of bad argument is an exception that names the operator and the argument."""

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional

X = torch.randn(32, 128)
ONE = torch.ones(())


def of_wrong_scale(scale: Tensor | None) -> dict[str, object]:
    return {"scaling": "TensorWise", "scale": scale}


BAD = {
    "dtype": ({"dtype": torch.float16}, TypeError, "dtype must be torch.float8_e4m3fn or"),
    "scaling": ({"scaling": "BlockWise1x16"}, ValueError, "scaling must be one of 'TensorWise'"),
    "a member": (
        {"scaling": torch.nn.functional.ScalingType.BlockWise128x128},
        ValueError,
        "scaling must be one of",
    ),
    "along": ({"along": "diagonal"}, ValueError, "along must be one of 'row' 'column' 'both'"),
    "mode": ({"mode": "even"}, ValueError, "mode must be one of 'floor' 'rceil', got 'even'"),
    "swizzle": ({"swizzle": "SWIZZLE"}, ValueError, "swizzle must be one of 'NO_SWIZZLE'"),
    "columns of rows": (
        {"scaling": "RowWise", "along": "column"},
        ValueError,
        "along must be 'row' for RowWise, got 'column'",
    ),
    "swizzled floats": (
        {"scaling": "BlockWise1x128", "swizzle": "SWIZZLE_32_4_4"},
        ValueError,
        "swizzle must be 'NO_SWIZZLE' for BlockWise1x128",
    ),
    "no scale": (of_wrong_scale(None), ValueError, "scale must be given for TensorWise"),
    "two scales": (of_wrong_scale(torch.ones(2)), ValueError, "scale must be one number"),
    "a double": (of_wrong_scale(ONE.double()), TypeError, "scale must be float32, got Double"),
    "zero": (of_wrong_scale(ONE * 0), ValueError, "scale must be positive, got 0"),
    "negative": (of_wrong_scale(-ONE), ValueError, "scale must be positive, got -1"),
    "NaN": (of_wrong_scale(ONE * torch.nan), ValueError, "scale must be positive, got nan"),
    "elsewhere": (of_wrong_scale(ONE.to("meta")), ValueError, "scale must be on the device of x"),
    "needless": ({"scale": ONE}, ValueError, "scale must be None for BlockWise1x32"),
    "gate": ({"gate": "gaussian"}, ValueError, "gate must be one of 'normal'"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("op", ["quantized_gate", "quantized_glu"])
def test_bad_options(op: str, kind: str) -> None:
    options, error, message = BAD[kind]
    with pytest.raises(error, match=f"gelu_kernels::{op}(_forward)?: {message}"):
        getattr(functional, op)(X, **{"gate": "normal"} | options)


SIZES = [
    (
        "RowWise",
        "row",
        (4, 40),
        "the last dimension of the result must be a multiple of 16, got 40",
    ),
    ("TensorWise", "row", (8,), "the last dimension of the result must be a multiple of 16, got 8"),
    (
        "BlockWise1x128",
        "row",
        (4, 64),
        "the last dimension of the result must be a multiple of 128",
    ),
    ("BlockWise1x32", "row", (4, 48), "the last dimension of the result must be a multiple of 32"),
    (
        "BlockWise1x32",
        "both",
        (2, 8, 32),
        "the number of rows of x must be a multiple of 32, got 16",
    ),
    ("BlockWise1x32", "column", (32, 16), "the last dimension of the result must be a multiple"),
]


@pytest.mark.parametrize("scaling, along, shape, message", SIZES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sizes_that_do_not_divide(
    device: str, scaling: str, along: str, shape: tuple[int, ...], message: str
) -> None:
    x = torch.randn(shape, device=device)
    options = {"scaling": scaling, "along": along}
    if scaling == "TensorWise":
        options["scale"] = ONE.to(device)
    with pytest.raises(ValueError, match=f"quantized_gate_forward: {message}"):
        functional.quantized_gate(x, **options)
    halves = torch.randn(*shape[:-1], 2 * shape[-1], device=device)
    with pytest.raises(ValueError, match=f"quantized_glu_forward: {message}"):
        functional.quantized_swiglu(halves, **options)
    if scaling == "BlockWise1x32":
        with pytest.raises(ValueError, match=f"quantized_gate_backward: {message}"):
            functional.quantized_gate_backward(x, x, along=along)
        with pytest.raises(ValueError, match=f"quantized_glu_halves_backward: {message}"):
            functional.quantized_glu_backward(x, halves, gate="normal", along=along)


BAD_X = {
    "float64": (X.double(), TypeError, "x must be float32 or bfloat16, got Double"),
    "float16": (X.half(), TypeError, "x must be float32 or bfloat16, got Half"),
    "integers": (X.int(), TypeError, "x must be float64, float32"),
    "sparse": (X.to_sparse(), TypeError, "x must be a strided tensor"),
    "0-d": (ONE, ValueError, "x must have a last dimension"),
}


@pytest.mark.parametrize("kind", BAD_X)
def test_bad_x(kind: str) -> None:
    x, error, message = BAD_X[kind]
    with pytest.raises(error, match=f"gelu_kernels::quantized_gate: {message}"):
        functional.quantized_gate(x)
    with pytest.raises(error, match=f"gelu_kernels::quantized_glu: {message}"):
        functional.quantized_swiglu(x)


def test_tensors_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="quantized_gate: bias must be as long as the last"):
        functional.quantized_gate(X, torch.ones(64))
    with pytest.raises(TypeError, match="quantized_gate: bias must have the dtype of x"):
        functional.quantized_gate(X, torch.ones(128).half())
    with pytest.raises(ValueError, match="quantized_glu: up must have the shape of x"):
        functional.quantized_swiglu(X, X[:16])
    with pytest.raises(ValueError, match="quantized_gate_backward: dy must have the shape of x"):
        functional.quantized_gate_backward(X[:16], X)
    with pytest.raises(TypeError, match="quantized_glu_backward: dy must have the dtype of x"):
        functional.quantized_glu_backward(X.bfloat16(), X, X, gate="normal")
    with pytest.raises(ValueError, match="dy must have the shape of a half of x"):
        functional.quantized_glu_backward(X, X, gate="normal")
    with pytest.raises(ValueError, match="quantized_geglu: approximate must be one of 'none'"):
        functional.quantized_geglu(X, approximate="erf")
    with pytest.raises(ValueError, match="the last dimension of x must be even"):
        functional.quantized_swiglu(torch.randn(4, 31))
