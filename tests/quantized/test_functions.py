"""The functions that quantise: each calls its operator, by the mode that is the default, and their
results are operands of torch's products."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gelu_kernels import functional
from tests.cases import each
from tests.oracles.quantized_oracle import Expected, Recipe, bytes_of, quantised, with_given_scale
from tests.quantized.checks import same
from tests.quantized.passes import DTYPES, FLOAT8, PASSES, RECIPES, Inputs, inputs_of, spread

SCALE = 0.0123


def check_rows(data: Tensor, scales: Tensor, expected: Expected) -> None:
    assert torch.equal(data.view(torch.uint8), bytes_of(expected.numbers, data.dtype))
    if scales.dtype == torch.float8_e8m0fnu:
        scales = scales.view(torch.uint8)
    found = scales.double().view(expected.scales.shape)
    torch.testing.assert_close(found, expected.scales, rtol=0, atol=0, equal_nan=True)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., object]]] = {
    "gate": (
        lambda x, up, bias: functional.gate(x),
        lambda x, up, bias, **k: functional.quantized_gate(x, **k),
    ),
    "biased gate": (
        lambda x, up, bias: functional.gate(x, bias, gate="laplace"),
        lambda x, up, bias, **k: functional.quantized_gate(x, bias, gate="laplace", **k),
    ),
    "GLU": (
        lambda x, up, bias: functional.swiglu(x, up),
        lambda x, up, bias, **k: functional.quantized_swiglu(x, up, **k),
    ),
    "clamped GLU": (
        lambda x, up, bias: functional.glu(x, up, gate="quick_gelu", limit=7, up_offset=1),
        lambda x, up, bias, **k: functional.quantized_glu(
            x, up, gate="quick_gelu", limit=7, up_offset=1, **k
        ),
    ),
    "weighted GLU": (
        lambda x, up, bias: functional.glu(x, up, gate="silu", weight=x[..., 0]),
        lambda x, up, bias, **k: functional.quantized_glu(
            x, up, gate="silu", weight=x[..., 0], **k
        ),
    ),
    "GLU of halves": (
        lambda x, up, bias: functional.geglu(torch.cat([x, up], -1), approximate="tanh"),
        lambda x, up, bias, **k: functional.quantized_geglu(
            torch.cat([x, up], -1), approximate="tanh", **k
        ),
    ),
}


@each(
    float8=FLOAT8,
    dtype=DTYPES,
    scaling=["TensorWise", "RowWise", "BlockWise1x128", "BlockWise1x32"],
    name=FUNCTIONS,
)
def test_functions(float8: torch.dtype, dtype: torch.dtype, scaling: str, name: str) -> None:
    """Along rows, with the mode by default."""
    plain, quantising = FUNCTIONS[name]
    for shape in ((128,), (1, 128), (33, 128), (64, 640), (2, 32, 128), (3, 2048)):
        x, up = spread(*shape).to(dtype), spread(*shape).to(dtype)
        inputs = x, up, torch.randn(shape[-1]).to(dtype)
        y = plain(*inputs)
        if scaling == "TensorWise":
            scale = torch.tensor(SCALE)
            data, scales = quantising(*inputs, dtype=float8, scaling=scaling, scale=scale)
            expected = with_given_scale(y, float8, scale)
        else:
            data, scales = quantising(*inputs, dtype=float8, scaling=scaling)
            mode = "floor" if scaling == "BlockWise1x32" else "amax"
            expected = quantised(y, float8, scaling, mode)
        assert data.shape == y.shape and data.is_contiguous() and data.dtype == float8
        check_rows(data, scales, expected)


def public_results(inputs: Inputs, **options: object) -> dict[str, object]:
    """Of the functions for every pass, whose names say which arguments they take."""
    f, (dy, x, up, bias, weight) = functional, inputs
    number = {"limit": 1.5, "up_offset": 0.75}
    o = {"gate": "laplace", **options}
    return {
        "gate": f.quantized_gate(x, **o),
        "biased gate": f.quantized_gate(x, bias, **o),
        "GLU": f.quantized_glu(x, up, **o),
        "clamped GLU": f.quantized_glu(x, up, **number, **o),
        "weighted GLU": f.quantized_glu(x, up, weight=weight, **number, **o),
        "GLU of halves": f.quantized_glu(inputs.halves, **o),
        "weighted GLU of halves": f.quantized_glu(inputs.halves, weight=weight, **o),
        "backward": f.quantized_gate_backward(dy, x, **o),
        "backward with dbias": f.quantized_gate_backward(dy, x, bias, **o),
        "GLU backward": f.quantized_glu_backward(dy, x, up, **o),
        "clamped GLU backward": f.quantized_glu_backward(dy, x, up, **number, **o),
        "GLU backward with dweight": f.quantized_glu_backward(
            dy, x, up, weight=weight, **number, **o
        ),
        "halves backward": f.quantized_glu_backward(dy, inputs.halves, **o),
        "halves backward with dweight": f.quantized_glu_backward(
            dy, inputs.halves, weight=weight, **o
        ),
    }


@each(recipe=RECIPES, along=["row", "column", "both"], ends=[None, [3, 3, 128]])
def test_functions_call_the_operators(recipe: Recipe, along: str, ends: list[int] | None) -> None:
    """With the same arguments, in the order of the results that the functions promise."""
    inputs = inputs_of(torch.bfloat16, 128, 128)
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    chosen = recipe._asdict() | {"along": along, "offsets": offsets, "dtype": FLOAT8[1]}
    for name, found in public_results(inputs, **chosen).items():
        core = PASSES[name].quantised(inputs, "laplace", FLOAT8[1], recipe, along, offsets)
        sums = len(core) // 4 * 4
        wanted = [
            t
            for k, t in enumerate(core)
            if k >= sums or along in (("row", "column")[k % 4 // 2], "both")
        ]
        leaves = tree_leaves(found)
        assert len(leaves) == len(wanted) and all(map(same, leaves, wanted)), name


@pytest.mark.skipif(
    not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm_v2", "CPU"),
    reason="needs a torch whose scaled_mm is for CPUs too",
)
def test_scaled_mm_takes_them() -> None:
    """Without conversion, in the scalings that it supports on a CPU."""
    scaled_mm, kinds = torch.nn.functional.scaled_mm, torch.nn.functional.ScalingType
    x, weight = torch.randn(32, 64).bfloat16(), torch.randn(48, 64).to(torch.float8_e4m3fn)
    for kind, scale, ones in (
        (kinds.TensorWise, torch.tensor(0.01), torch.ones(())),
        (kinds.RowWise, None, torch.ones(1, 48)),
    ):
        data, scales = functional.quantized_gate(x, scaling=kind, scale=scale)
        scales = scales if scale is None else scale
        product = scaled_mm(data, weight.t(), scales, kind, ones, kind, output_dtype=torch.bfloat16)
        expected = (data.double() * scales) @ weight.double().t()
        torch.testing.assert_close(product.double(), expected, rtol=2.0**-8, atol=1e-5)


@each(rows=[5, 128], columns=[128, 640])
def test_strides_for_scaled_mm(rows: int, columns: int) -> None:
    """Blocks of 128: (M, K / 128) with strides (1, M), for both operands. Groups along columns, as
    scaled_grouped_mm takes them: the scales of a group follow those of the one before."""
    x = torch.randn(rows, columns)
    scale = functional.quantized_gate(x, scaling="BlockWise1x128").scale
    assert scale.shape == (rows, columns // 128) and scale.stride() == (1, rows)
    if rows % 128 == 0:
        options = {"scaling": "BlockWise1x128", "along": "column"}
        scale = functional.quantized_gate(x, **options).scale
        assert scale.shape == (columns, rows // 128) and scale.stride() == (1, columns)
        ends = torch.tensor([3, 3, rows], dtype=torch.int32)
        options |= {"scaling": "RowWise"}
        of_groups = functional.quantized_gate(x, offsets=ends, **options).scale
        assert of_groups.shape == (columns, 3) and of_groups.stride() == (1, columns)
        assert functional.quantized_gate(x, **options).scale.is_contiguous()
    assert functional.quantized_gate(x, scaling="RowWise").scale.shape == (rows, 1)
    packed = functional.quantized_gate(x, scaling="BlockWise1x128", mode="rceil", packed=True).scale
    assert packed.shape == (rows, -(-columns // 512)) and packed.dtype == torch.int32
    assert packed.stride() == (1, -(-rows // 4) * 4)
