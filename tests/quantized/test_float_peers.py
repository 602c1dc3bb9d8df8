"""Data and scales that are floats, beside torchao's for blocks of 128 and for rows, which it trains
with on Hopper. Data have the same bits, but where torchao departs from amax / L:

- It takes amax as at least 1e-12; for blocks of smaller numbers, its data are smaller than ours.
- It returns the float32 inverse of the float32 quotient L / amax. Ours is amax / L, rounded once;
  the two are at most 1.5 units in the last place apart.
- Its powers of two come from a logarithm in float32. For an amax just above L 2^k it mostly finds
  the power of two below, where numbers saturate; ours is the one above.
"""

import pytest
import torch
from torch import Tensor
from torchao.float8.config import ScalingGranularity
from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
from torchao.prototype.moe_training.utils import torch_to_float8_per_group_colwise

from gelu_kernels import functional
from gelu_kernels.functional import Quantized
from tests.cases import each
from tests.oracles.quantized_oracle import FORMATS
from tests.quantized.passes import DTYPES
from tests.quantized.test_numbers import any_numbers, straight
from tests.quantized.test_peers import same_data

kernels = pytest.importorskip("torchao.prototype.blockwise_fp8_training.kernels")
FLOAT8 = torch.float8_e4m3fn
LEAST = 1e-12  # torchao's, of amax
ULP = 2.0**-23


def blocks_of_128(y: Tensor) -> tuple[Quantized, Quantized]:
    """torchao's along rows, and along columns, transposed."""
    rows = kernels.torch_blockwise_scale_act_quant_lhs(y.contiguous())
    data, scale = kernels.torch_blockwise_scale_act_quant_rhs(y.contiguous())
    return Quantized(*rows), Quantized(data.t(), scale.t())


def ordinary(*shape: int) -> Tensor:
    """Rows and columns of many magnitudes, above torchao's least."""
    by_rows, by_columns = (torch.randint(-6, 7, (n,)).float() for n in shape)
    return torch.randn(shape) * torch.exp2(by_rows[:, None] + by_columns)


def assert_near(ours: Tensor, torchaos: Tensor) -> None:
    """At most 1.5 units in the last place apart: three divisions are each half of one wrong."""
    apart = (ours.double() - torchaos.double()).abs() / ours.double()
    assert apart.max() <= 1.5 * ULP


@each(dtype=DTYPES, name=["gate", "biased gate", "GLU", "backward"])
def test_blocks_of_128(dtype: torch.dtype, name: str) -> None:
    """All data of four passes, along rows and columns, and the scales' strides."""
    dy, x, up = (ordinary(512, 384).to(dtype) for _ in range(3))
    bias = torch.randn(384).to(dtype)
    options = {"scaling": "BlockWise1x128", "along": "both"}
    y, pairs = {
        "gate": lambda: (functional.gelu(x), functional.quantized_gate(x, **options)),
        "biased gate": lambda: (
            functional.bias_gelu(x, bias),
            functional.quantized_gate(x, bias, **options),
        ),
        "GLU": lambda: (functional.swiglu(x, up), functional.quantized_swiglu(x, up, **options)),
        "backward": lambda: (
            torch.ops.gelu_kernels.gate_backward(dy, x, None, "normal"),
            functional.quantized_gate_backward(dy, x, **options),
        ),
    }[name]()
    for ours, torchaos in zip(pairs, blocks_of_128(y), strict=True):
        assert same_data(ours.data, torchaos.data).all()
        assert ours.scale.shape == torchaos.scale.shape
        assert ours.scale.stride() == torchaos.scale.stride()
        assert_near(ours.scale, torchaos.scale)
        assert (ours.scale != torchaos.scale).any()  # the scales do differ


@each(dtype=DTYPES)
def test_any_numbers(dtype: torch.dtype) -> None:
    """Data are the same but in blocks whose amax is below torchao's least, and not in all of
    these; scales, but for NaN, infinity and subnormal ones."""
    differ = 0
    for numbers in any_numbers(dtype):
        pairs = straight(numbers, scaling="BlockWise1x128", along="both")
        for ours, torchaos, of in zip(
            pairs, blocks_of_128(numbers), (numbers, numbers.t()), strict=True
        ):
            amax = of.float().unflatten(-1, (-1, 128)).abs().amax(-1)
            is_small = (amax < LEAST).repeat_interleave(128, -1)
            same = same_data(ours.data, torchaos.data)
            assert (same | is_small).all()
            differ += (~same).sum()
            is_usual = (amax >= LEAST) & amax.isfinite()
            assert_near(ours.scale[is_usual], torchaos.scale[is_usual])
            assert torch.equal(ours.scale.isnan(), torchaos.scale.isnan())
            assert torch.equal(ours.scale.isinf(), torchaos.scale.isinf())
    assert differ > 0 or dtype == torch.float32


def test_blocks_below_torchaos_least() -> None:
    """Ours use all of the format's range; torchao's are zero."""
    numbers = torch.full((1, 128), 2.0**-60)
    ours = straight(numbers, scaling="BlockWise1x128")
    data, _ = kernels.torch_blockwise_scale_act_quant_lhs(numbers)
    assert (ours.data.float() == 448).all() and (data.float() == 0).all()
    expected = numbers.double()
    torch.testing.assert_close(ours.data.double() * ours.scale.double(), expected, rtol=ULP, atol=0)


def rows_of(y: Tensor, float8: torch.dtype, powers: bool) -> tuple[Tensor, Tensor]:
    factor = tensor_to_scale(
        y,
        float8,
        scaling_granularity=ScalingGranularity.AXISWISE,
        axiswise_dim=-1,
        round_scales_to_power_of_2=powers,
    )
    return to_fp8_saturated(y.float() * factor, float8), 1 / factor


@each(dtype=DTYPES, float8=FORMATS, mode=["amax", "rceil"])
def test_rows(dtype: torch.dtype, float8: torch.dtype, mode: str) -> None:
    """Of a matrix and of its transpose; round_scales_to_power_of_2 is the mode rceil."""
    x = ordinary(512, 384).to(dtype)
    y = functional.gelu(x)
    pairs = functional.quantized_gate(x, scaling="RowWise", along="both", mode=mode, dtype=float8)
    for ours, of in zip(pairs, (y, y.t()), strict=True):
        data, scale = rows_of(of, float8, mode == "rceil")
        assert same_data(ours.data, data).all()
        if mode == "rceil":
            assert torch.equal(ours.scale, scale)
        else:
            assert_near(ours.scale, scale)


@each(dtype=DTYPES, mode=["amax", "rceil"])
def test_columns_of_groups(dtype: torch.dtype, mode: str) -> None:
    """torchao's scales of a group follow those of the group before."""
    x = ordinary(512, 128).to(dtype)
    ends = torch.tensor([96, 226, 384, 512], dtype=torch.int32)
    ours = functional.quantized_gate(x, scaling="RowWise", along="column", mode=mode, offsets=ends)
    powers = mode == "rceil"
    y = functional.gelu(x)
    assert all(group.abs().amax(0).min() > LEAST for group in y.split([96, 130, 158, 128]))
    data, factors = torch_to_float8_per_group_colwise(y, ends, FLOAT8, powers)
    assert same_data(ours.data, data.t()).all()
    scale = 1 / factors.view(4, 128).t()
    if powers:
        assert torch.equal(ours.scale, scale)
    else:
        assert_near(ours.scale, scale)


@each(scaling=["RowWise", "BlockWise1x128"])
def test_just_above_a_power_of_two(scaling: str) -> None:
    """Of 60 rows whose amax is the next float after 448 2^k, torchao's saturate in most."""
    powers = 448 * torch.exp2(torch.arange(-30.0, 30.0))
    amax = (powers.view(torch.int32) + 1).view(torch.float32)
    numbers = amax.unsqueeze(1).expand(-1, 128).contiguous()
    ours = straight(numbers, scaling=scaling, mode="rceil")
    assert torch.equal(ours.scale.flatten(), powers / 224)
    _, scale = rows_of(numbers, FLOAT8, powers=True)
    assert (scale.flatten() == powers / 448).sum() > 30
