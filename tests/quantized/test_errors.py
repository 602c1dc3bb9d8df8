"""Bad arguments of the quantised operators: the error names the operator and the argument."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional
from tests.cases import each

X = torch.randn(32, 128)
ONE = torch.ones(())
ROW_WISE = {"scaling": "RowWise"}
IN_BLOCKS = {"scaling": "BlockWise1x128"}
GIVEN = {"scaling": "TensorWise", "scale": ONE}
BLOCKS_OF_ROWS = torch.nn.functional.ScalingType.BlockWise128x128
PACKED = "packed must be False but for BlockWise1x128 with mode 'floor' or 'rceil', got True for "
BAD_OPTIONS = [
    ({"scaling": "BlockWise1x16"}, "scaling must be one of "),
    ({"scaling": BLOCKS_OF_ROWS}, "scaling must be one of "),
    ({"along": "diagonal"}, "along must be one of 'row' 'column' 'both'"),
    ({"mode": "even"}, "mode must be one of 'amax' 'floor' 'rceil', got 'even'"),
    ({"mode": "amax"}, "mode must be 'floor' or 'rceil' for BlockWise1x32, got 'amax'"),
    ({"swizzle": "SWIZZLE"}, "swizzle must be one of 'NO_SWIZZLE'"),
    (IN_BLOCKS | {"swizzle": "SWIZZLE_32_4_4"}, "swizzle must be 'NO_SWIZZLE' for BlockWise1x128"),
    (ROW_WISE | {"swizzle": "SWIZZLE_32_4_4"}, "swizzle must be 'NO_SWIZZLE' for RowWise"),
    ({"packed": True}, PACKED + "BlockWise1x32 with mode 'floor'"),
    (IN_BLOCKS | {"packed": True}, PACKED + "BlockWise1x128 with mode 'amax'"),
    (ROW_WISE | {"packed": True, "mode": "floor"}, PACKED + "RowWise with mode 'floor'"),
    ({"gate": "gaussian"}, "gate must be one of 'normal'"),
]
BAD_OF_GIVEN = [
    ({"along": "column"}, "along must be 'row' for TensorWise, got 'column'"),
    ({"along": "both"}, "along must be 'row' for TensorWise, got 'both'"),
    ({"mode": "floor"}, "mode must be None for TensorWise, whose scale is given, got 'floor'"),
    ({"packed": True}, PACKED + "TensorWise with mode 'amax'"),
    ({"swizzle": "SWIZZLE_32_4_4"}, "swizzle must be 'NO_SWIZZLE' for TensorWise"),
    ({"scale": None}, "scale must be given for TensorWise"),
    ({"scale": torch.ones(2)}, "scale must be one number"),
    ({"scale": ONE * 0}, "scale must be positive, got 0"),
    ({"scale": -ONE}, "scale must be positive, got -1"),
    ({"scale": ONE * torch.nan}, "scale must be positive, got nan"),
    ({"scale": ONE.to("meta")}, "scale must be on the device of input"),
    ({"scaling": "BlockWise1x32"}, "scale must be None for BlockWise1x32"),
    (IN_BLOCKS, "scale must be None for BlockWise1x128"),
    (ROW_WISE, "scale must be None for RowWise"),
]
ENDS = torch.tensor([1, 32], dtype=torch.int32)
ASCEND = "offsets must ascend from 0 to at most the number of rows of input, 32, got "
BAD_OFFSETS = [
    (ENDS.long(), TypeError, "offsets must be int32, got torch.int64"),
    (ENDS.float(), TypeError, "offsets must be int32, got torch.float32"),
    (ENDS[0], ValueError, r"offsets must be a vector with the end of each group, got shape \[\]"),
    (ENDS[None], ValueError, r"offsets must be a vector with the .*, got shape \[1, 2\]"),
    (ENDS[:0], ValueError, r"offsets must be a vector with the .*, got shape \[0\]"),
    (ENDS.to("meta"), ValueError, "offsets must be on the device of input, cpu, got meta"),
    (ENDS.flip(0), ValueError, ASCEND + "1 after 32"),
    (ENDS + 1, ValueError, ASCEND + "33 after 2"),
    (ENDS - 2, ValueError, ASCEND + "-1 after 0"),
    ([1, 32], TypeError, "argument 'offsets' must be Tensor or None, not list"),
]
BAD_TYPES = [
    ({"dtype": torch.float16}, "dtype must be torch.float8_e4m3fn or"),
    (GIVEN | {"scale": ONE.double()}, "scale must be float32, got torch.float64"),
    ({"packed": "yes"}, "argument 'packed' must be bool, not str"),
    ({"along": 1}, "argument 'along' must be str, not int"),
    ({"mode": 1}, "argument 'mode' must be str or None, not int"),
]
COMMON = [(options, ValueError, message) for options, message in BAD_OPTIONS]
COMMON += [({"offsets": o}, error, message) for o, error, message in BAD_OFFSETS]
# Also where groups change no result.
COMMON += [(ROW_WISE | {"offsets": ENDS + 1}, ValueError, ASCEND + "33 after 2")]
BAD = [(GIVEN | options, ValueError, message) for options, message in BAD_OF_GIVEN]
# The dispatcher finds no kernel of a gradient for it, and says so.
SPARSE = "offsets must be a strided tensor, got layout Sparse"
BAD += [({"offsets": ENDS.to_sparse()}, TypeError, SPARSE)]
BAD += [({"scale": ONE}, ValueError, "scale must be None for BlockWise1x32")]
BAD += [(options, TypeError, message) for options, message in BAD_TYPES]


@each(op=["quantized_gate", "quantized_glu"], bad=COMMON + BAD)
def test_bad_options(op: str, bad: tuple[dict, type[Exception], str]) -> None:
    options, error, message = bad
    with pytest.raises(error, match=rf"^{op}\(\): {message}"):
        getattr(functional, op)(X, **{"gate": "normal"} | options)


# By what is differentiated: a gate, with a bias; a GLU, its halves, and both with a weight.
GRADIENTS: dict[str, Callable[..., object]] = {
    "gate": lambda **o: functional.quantized_gate_backward(X, X, **o),
    "bias": lambda **o: functional.quantized_gate_backward(X, X, X[0], **o),
    "GLU": lambda **o: functional.quantized_glu_backward(X, X, X, **o),
    "weighted GLU": lambda **o: functional.quantized_glu_backward(X, X, X, weight=X[:, 0], **o),
    "halves": lambda **o: functional.quantized_glu_backward(X, HALVES, **o),
    "weighted halves": lambda **o: functional.quantized_glu_backward(
        X, HALVES, weight=X[:, 0], **o
    ),
}
HALVES = torch.cat([X, X], -1)
WITHOUT_A_SCALE = "scaling must be one of 'RowWise' 'BlockWise1x128' 'BlockWise1x32', got '"
OF_GRADIENTS = [
    ({"scaling": "TensorWise"}, ValueError, WITHOUT_A_SCALE + "TensorWise'"),
    ({"dtype": torch.float16}, TypeError, "dtype must be torch.float8_e4m3fn or"),
    ({"packed": "yes"}, TypeError, "argument 'packed' must be bool, not str"),
    ({"along": 1}, TypeError, "argument 'along' must be str, not int"),
    ({"mode": ""}, ValueError, "mode must be one of 'amax' 'floor' 'rceil', got ''"),
    ({"mode": 1}, TypeError, "argument 'mode' must be str( or None)?, not int"),
]


@each(of=GRADIENTS, bad=COMMON + OF_GRADIENTS)
def test_bad_options_of_gradients(of: str, bad: tuple[dict, type[Exception], str]) -> None:
    options, error, message = bad
    op = "quantized_gate_backward" if of in ("gate", "bias") else "quantized_glu_backward"
    with pytest.raises(error, match=rf"^{op}\(\): {message}"):
        GRADIENTS[of](**{"gate": "normal"} | options)


BAD_NUMBERS = [
    ({"limit": 0.0}, ValueError, "limit must be positive, got 0"),
    ({"limit": math.nan}, ValueError, "limit must be positive, got nan"),
    ({"limit": "7"}, TypeError, "argument 'limit' must be float or None, not str"),
    ({"up_offset": math.inf}, ValueError, "up_offset must be finite, got inf"),
    ({"up_offset": None}, TypeError, "argument 'up_offset' must be float, not NoneType"),
    ({"weight": X}, ValueError, r"weight must have a number for each row of input, \[32\], got"),
    ({"weight": X[:, 0].half()}, TypeError, "weight must have the dtype of input"),
    ({"weight": X[:, 0].to("meta")}, ValueError, "weight must be on the device of input"),
    ({"weight": 1.0}, TypeError, "argument 'weight' must be Tensor( or None)?, not float"),
]


@each(scaling=["BlockWise1x32", "BlockWise1x128"], bad=BAD_NUMBERS)
def test_bad_numbers(scaling: str, bad: tuple[dict, type[Exception], str]) -> None:
    """As functional.glu refuses them."""
    numbers, error, message = bad
    options = {"gate": "normal", "scaling": scaling} | numbers
    for call, name in (
        (lambda: functional.glu(X, X, **{"gate": "normal"} | numbers), "glu"),
        (lambda: functional.quantized_glu(X, X, **options), "quantized_glu"),
        (lambda: functional.quantized_glu(HALVES, **options), "quantized_glu"),
        (lambda: functional.quantized_glu_backward(X, X, X, **options), "quantized_glu_backward"),
        (lambda: functional.quantized_glu_backward(X, HALVES, **options), "quantized_glu_backward"),
    ):
        with pytest.raises(error, match=rf"^{name}\(\): {message}"):
            call()


LAST = "the last dimension of the result must be a multiple of"
ROWS = "the number of rows of input must be a multiple of"
SIZES = [  # the scaling, along, whether there are groups, the shape, and the message
    ("RowWise", "row", False, (4, 40), f"{LAST} 16, got 40"),
    ("RowWise", "column", False, (16, 40), f"{LAST} 16, got 40"),
    ("RowWise", "both", False, (3, 8, 32), f"{ROWS} 16, got 24"),
    ("RowWise", "column", True, (24, 32), f"{ROWS} 16, got 24"),
    ("TensorWise", "row", False, (8,), f"{LAST} 16, got 8"),
    ("TensorWise", "row", True, (1, 8), f"{LAST} 16, got 8"),
    ("BlockWise1x128", "row", False, (4, 64), f"{LAST} 128, got 64"),
    ("BlockWise1x128", "column", False, (128, 64), f"{LAST} 128, got 64"),
    ("BlockWise1x128", "column", False, (64, 128), f"{ROWS} 128, got 64"),
    ("BlockWise1x128", "both", False, (2, 32, 128), f"{ROWS} 128, got 64"),
    ("BlockWise1x128", "column", True, (16, 64), f"{LAST} 128, got 64"),
    ("BlockWise1x128", "both", True, (8, 128), f"{ROWS} 16, got 8"),
    ("BlockWise1x32", "row", False, (4, 48), f"{LAST} 32, got 48"),
    ("BlockWise1x32", "both", False, (2, 8, 32), f"{ROWS} 32, got 16"),
    ("BlockWise1x32", "column", False, (32, 16), f"{LAST} 32, got 16"),
    ("BlockWise1x32", "row", True, (16, 48), f"{LAST} 32, got 48"),
    ("BlockWise1x32", "both", True, (24, 32), f"{ROWS} 16, got 24"),
]


@each(device=["cpu", "meta"], case=SIZES)
def test_sizes_that_do_not_divide(device: str, case: tuple) -> None:
    scaling, along, has_groups, shape, message = case
    x = torch.randn(shape, device=device)
    halves = torch.randn(*shape[:-1], 2 * shape[-1], device=device)
    options = {"scaling": scaling, "along": along}
    if has_groups:
        options["offsets"] = torch.zeros(2, dtype=torch.int32, device=device)
    given = {"scale": ONE.to(device)} if scaling == "TensorWise" else {}
    weight = x[..., 0]
    calls = {
        "quantized_gate": lambda: functional.quantized_gate(x, **options, **given),
        "quantized_swiglu": lambda: functional.quantized_swiglu(halves, **options, **given),
    }
    of_gate, of_glu = functional.quantized_gate_backward, functional.quantized_glu_backward
    of_glu = partial(of_glu, gate="normal")
    if scaling != "TensorWise":
        calls |= {
            "quantized_gate_backward": lambda: of_gate(x, x, **options),
            "quantized_gate_backward(): with a bias": lambda: of_gate(
                x, x, torch.empty(shape[-1], device=device), **options
            ),
            "quantized_glu_backward": lambda: of_glu(x, halves, **options),
            "quantized_glu_backward(): of two": lambda: of_glu(x, x, x, **options),
            "quantized_glu_backward(): weighted": lambda: of_glu(x, x, x, weight=weight, **options),
            "quantized_glu_backward(): weighted halves": lambda: of_glu(
                x, halves, weight=weight, **options
            ),
        }
    for name, call in calls.items():
        function = name.partition("(")[0]
        with pytest.raises(ValueError, match=rf"^{function}\(\): {message}"):
            call()


@each(rows=[1, 15, 33], along=["row", "column", "both"])
def test_sizes_that_need_not_divide(rows: int, along: str) -> None:
    """Along rows, any number of rows; in groups along columns, a multiple of 16."""
    for scaling in ("RowWise", "BlockWise1x128", "BlockWise1x32"):
        offsets = torch.tensor([rows], dtype=torch.int32)
        if along == "row":
            functional.quantized_gate(torch.randn(rows, 128), scaling=scaling, offsets=offsets)
        else:
            x = torch.randn(16 * rows, 128)
            functional.quantized_gate(x, scaling=scaling, offsets=offsets, along=along)


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
