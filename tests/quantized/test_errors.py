"""Bad arguments of the quantised operators: the error names the operator and the argument."""

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from tests.cases import each

X = torch.randn(32, 128)
ONE = torch.ones(())


ROW_WISE = {"scaling": "RowWise"}
IN_BLOCKS = {"scaling": "BlockWise1x128"}
BLOCKS_OF_ROWS = torch.nn.functional.ScalingType.BlockWise128x128
BAD_OPTIONS = [
    ({"scaling": "BlockWise1x16"}, "scaling must be one of 'TensorWise'"),
    ({"scaling": BLOCKS_OF_ROWS}, "scaling must be one of"),
    ({"along": "diagonal"}, "along must be one of 'row' 'column' 'both'"),
    ({"mode": "even"}, "mode must be one of 'floor' 'rceil', got 'even'"),
    ({"swizzle": "SWIZZLE"}, "swizzle must be one of 'NO_SWIZZLE'"),
    (ROW_WISE | {"along": "column"}, "along must be 'row' for RowWise, got 'column'"),
    (IN_BLOCKS | {"swizzle": "SWIZZLE_32_4_4"}, "swizzle must be 'NO_SWIZZLE' for BlockWise1x128"),
    ({"scale": ONE}, "scale must be None for BlockWise1x32"),
    ({"gate": "gaussian"}, "gate must be one of 'normal'"),
]
BAD_SCALES = [  # for TensorWise
    (None, "scale must be given for TensorWise"),
    (torch.ones(2), "scale must be one number"),
    (ONE * 0, "scale must be positive, got 0"),
    (-ONE, "scale must be positive, got -1"),
    (ONE * torch.nan, "scale must be positive, got nan"),
    (ONE.to("meta"), "scale must be on the device of input"),
]
BAD_TYPES = [
    ({"dtype": torch.float16}, "dtype must be torch.float8_e4m3fn or"),
    ({"scaling": "TensorWise", "scale": ONE.double()}, "scale must be float32, got torch.float64"),
]
BAD = [(options, ValueError, message) for options, message in BAD_OPTIONS]
BAD += [({"scaling": "TensorWise", "scale": s}, ValueError, message) for s, message in BAD_SCALES]
BAD += [(options, TypeError, message) for options, message in BAD_TYPES]


@each(op=["quantized_gate", "quantized_glu"], bad=BAD)
def test_bad_options(op: str, bad: tuple[dict, type[Exception], str]) -> None:
    options, error, message = bad
    with pytest.raises(error, match=rf"^{op}\(\): {message}"):
        getattr(functional, op)(X, **{"gate": "normal"} | options)


SIZES = [  # the scaling, along, the shape, and what must be a multiple
    ("RowWise", "row", (4, 40), "last dimension of the result must be a multiple of 16, got 40"),
    ("TensorWise", "row", (8,), "last dimension of the result must be a multiple of 16, got 8"),
    ("BlockWise1x128", "row", (4, 64), "last dimension of the result must be a multiple of 128"),
    ("BlockWise1x32", "row", (4, 48), "last dimension of the result must be a multiple of 32"),
    (
        "BlockWise1x32",
        "both",
        (2, 8, 32),
        "number of rows of input must be a multiple of 32, got 16",
    ),
    ("BlockWise1x32", "column", (32, 16), "last dimension of the result must be a multiple"),
]


@each(device=["cpu", "meta"], case=SIZES)
def test_sizes_that_do_not_divide(device: str, case: tuple) -> None:
    scaling, along, shape, required = case
    message = f"the {required}"
    x = torch.randn(shape, device=device)
    options = {"scaling": scaling, "along": along}
    if scaling == "TensorWise":
        options["scale"] = ONE.to(device)
    with pytest.raises(ValueError, match=rf"^quantized_gate\(\): {message}"):
        functional.quantized_gate(x, **options)
    halves = torch.randn(*shape[:-1], 2 * shape[-1], device=device)
    with pytest.raises(ValueError, match=rf"^quantized_swiglu\(\): {message}"):
        functional.quantized_swiglu(halves, **options)
    if scaling == "BlockWise1x32":
        with pytest.raises(ValueError, match=rf"^quantized_gate_backward\(\): {message}"):
            functional.quantized_gate_backward(x, x, along=along)
        with pytest.raises(ValueError, match=rf"^quantized_glu_backward\(\): {message}"):
            functional.quantized_glu_backward(x, halves, gate="normal", along=along)


BAD_X = [
    (X.double(), TypeError, "input must be float32 or bfloat16, got torch.float64"),
    (X.half(), TypeError, "input must be float32 or bfloat16, got torch.float16"),
    (X.int(), TypeError, "input must be float64, float32"),
    (X.to_sparse(), TypeError, "input must be a strided tensor"),
    (ONE, ValueError, "input must have a last dimension"),
]


@each(bad=BAD_X)
def test_bad_x(bad: tuple[Tensor, type[Exception], str]) -> None:
    x, error, message = bad
    with pytest.raises(error, match=rf"^quantized_gate\(\): {message}"):
        functional.quantized_gate(x)
    with pytest.raises(error, match=rf"^quantized_swiglu\(\): {message}"):
        functional.quantized_swiglu(x)


def test_tensors_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"quantized_gate\(\): bias must be as long as the last"):
        functional.quantized_gate(X, torch.ones(64))
    with pytest.raises(TypeError, match=r"quantized_gate\(\): bias must have the dtype of input"):
        functional.quantized_gate(X, torch.ones(128).half())
    with pytest.raises(ValueError, match=r"quantized_swiglu\(\): up must have the shape of input"):
        functional.quantized_swiglu(X, X[:16])
    with pytest.raises(ValueError, match=r"gate_backward\(\): grad must have the shape of input"):
        functional.quantized_gate_backward(X[:16], X)
    with pytest.raises(TypeError, match=r"glu_backward\(\): grad must have the dtype of input"):
        functional.quantized_glu_backward(X.bfloat16(), X, X, gate="normal")
    with pytest.raises(ValueError, match="grad must have the shape of a half of input"):
        functional.quantized_glu_backward(X, X, gate="normal")
    with pytest.raises(ValueError, match=r"quantized_geglu\(\): approximate must be one of 'none'"):
        functional.quantized_geglu(X, approximate="erf")
    with pytest.raises(ValueError, match="the last dimension of input must be even"):
        functional.quantized_swiglu(torch.randn(4, 31))
