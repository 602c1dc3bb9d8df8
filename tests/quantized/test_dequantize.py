"""Back from eight bits: the gradient's dtype, empty tensors, and exports with dynamic sizes."""

import itertools
import math

import torch
from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.functional import Quantized, dequantize, quantized_gate
from tests.calls import DTYPES, Shape
from tests.cases import each
from tests.quantized.test_autograd import gelu_gradient

SWIZZLES = ["NO_SWIZZLE", "SWIZZLE_32_4_4"]


def assert_is_gradient(actual: Tensor, x: Tensor, dy: Tensor | float) -> None:
    """Of GELU, in the dtype and with the precision of x."""
    assert actual.dtype == x.dtype
    eps = torch.finfo(x.dtype).eps
    torch.testing.assert_close(actual.double(), gelu_gradient(x) * dy, rtol=2 * eps, atol=2 * eps)


@each(along=["row", "column", "both"], to=DTYPES, dtype=[torch.bfloat16, torch.float32])
def test_the_gradient_has_the_dtype_of_the_input(
    along: str, to: torch.dtype, dtype: torch.dtype
) -> None:
    x = torch.randn(64, 32).to(dtype).requires_grad_()
    results = quantized_gate(x, along=along)
    pairs = results if along == "both" else [results]
    sum(dequantize(*pair, dtype=to).sum() for pair in pairs).backward()
    assert_is_gradient(x.grad, x, len(pairs))


@each(to=DTYPES)
def test_of_a_gated_linear_unit(to: torch.dtype) -> None:
    x, up = (torch.randn(64, 32, requires_grad=True) for _ in range(2))
    dequantize(*functional.quantized_geglu(x, up), dtype=to).sum().backward()
    torch.testing.assert_close(
        x.grad.double(), gelu_gradient(x) * up.double(), rtol=1e-6, atol=1e-6
    )
    halves = torch.cat([x, up], -1).detach().requires_grad_()
    dequantize(*functional.quantized_geglu(halves), dtype=to).sum().backward()
    assert torch.equal(halves.grad, torch.cat([x.grad, up.grad], -1))


SMALL = 2.0**-12  # 1 + SMALL rounds to 1 in bfloat16, not in float32


@each(dtypes=list(itertools.permutations([torch.bfloat16, torch.float32])))
def test_gradients_of_several_dtypes_are_added_in_float32(dtypes: list[torch.dtype]) -> None:
    """In either order: autograd adds to the first gradient, in its dtype."""
    x = torch.randn(4, 32, requires_grad=True)
    pair = quantized_gate(x)
    weights = {torch.bfloat16: 1.0, torch.float32: SMALL}
    terms = [(dequantize(*pair, dtype=dtype) * weights[dtype]).sum().float() for dtype in dtypes]
    sum(terms).backward()
    assert_is_gradient(x.grad, x, 1 + SMALL)


@each(dtype=[torch.bfloat16, torch.float32])
def test_compiled(dtype: torch.dtype) -> None:
    def loss(x: Tensor) -> Tensor:
        pair = quantized_gate(x)
        return dequantize(*pair).sum() + (dequantize(*pair, dtype=torch.float32) * SMALL).sum()

    x = torch.randn(4, 32).to(dtype).requires_grad_()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(x).backward()
    assert_is_gradient(x.grad, x, 1 + SMALL)


@each(to=DTYPES)
def test_a_saved_tensor_comes_back_in_its_dtype(to: torch.dtype) -> None:
    """Whatever is quantised: 0.26, which is saved as 0.25."""
    x = torch.full((1, 16), 0.26, dtype=to, requires_grad=True)
    saved = Quantized(torch.full((1, 16), 2.0).to(torch.float8_e4m3fn), torch.tensor([[0.125]]))
    with functional.save_quantized((x, saved)):
        functional.gelu(x).sum().backward()
    assert x.grad.dtype == to
    eps = torch.finfo(to).eps
    at = gelu_gradient(torch.full((1, 16), 0.25))
    torch.testing.assert_close(x.grad.double(), at, rtol=4 * eps, atol=0)


EMPTY = [(0,), (4, 0), (0, 0), (0, 128), (2, 0, 128), (2, 3, 0), (0, 3, 128)]
SCALINGS = ["TensorWise", "RowWise", "BlockWise1x128", "BlockWise1x32"]


def assert_is_empty(x: Tensor, pair: tuple[Tensor, Tensor], shape: tuple, swizzle: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        result = dequantize(*pair, dtype=dtype, swizzle=swizzle)
        assert result.shape == shape and result.dtype == dtype
    (of_x,) = torch.autograd.grad(result, x, torch.ones_like(result))
    assert of_x.shape == x.shape and of_x.dtype == x.dtype


@each(shape=EMPTY, scaling=SCALINGS, dtype=[torch.bfloat16, torch.float32])
def test_no_elements(shape: Shape, scaling: str, dtype: torch.dtype) -> None:
    x = torch.empty(shape, dtype=dtype, requires_grad=True)
    for swizzle in SWIZZLES if scaling == "BlockWise1x32" else SWIZZLES[:1]:
        scale = torch.ones(()) if scaling == "TensorWise" else None
        data, other = quantized_gate(x, scaling=scaling, scale=scale, swizzle=swizzle)
        assert_is_empty(x, (data, other if scale is None else scale), shape, swizzle)


@each(shape=[(0, 64), (64, 0), (2, 0, 64), (2, 32, 0), (0, 0)], swizzle=SWIZZLES)
def test_no_elements_along_columns(shape: Shape, swizzle: str) -> None:
    x = torch.empty(shape, requires_grad=True)
    pair = quantized_gate(x, along="column", swizzle=swizzle)
    assert_is_empty(x, pair, (shape[-1], math.prod(shape[:-1])), swizzle)


class Dequantized(torch.nn.Module):
    def __init__(self, **options: str) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        swizzle = self.options.get("swizzle", "NO_SWIZZLE")
        return dequantize(*quantized_gate(x, **self.options), dtype=torch.float32, swizzle=swizzle)


class OfSelectedRows(Dequantized):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x[mask])


OPTIONS = [{"swizzle": swizzle} for swizzle in SWIZZLES] + [
    {"scaling": "RowWise"},
    {"scaling": "BlockWise1x128"},
]


def expected(x: Tensor) -> Tensor:
    """With a scale for each block of a row, which a swizzle only moves."""
    data, scale = quantized_gate(x)
    return data.float() * scale.float().repeat_interleave(32, -1)


@each(
    lambda leading, options, strict: strict,
    leading=[(), (3,)],
    options=OPTIONS,
    strict=[False, True],
)
def test_exported_with_any_number_of_rows(leading: Shape, options: dict, strict: bool) -> None:
    model = Dequantized(**options)
    dim = torch.export.Dim("rows", min=1, max=1024)
    x = torch.randn(*leading, 200, 128)
    shapes = ({len(leading): dim},)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=strict).module()
    for rows in (1, 127, 128, 129, 1024):
        x = torch.randn(*leading, rows, 128)
        assert torch.equal(program(x), expected(x) if "swizzle" in options else model(x))


@each(lambda options, strict: strict, options=OPTIONS, strict=[False, True])
def test_exported_with_rows_that_depend_on_data(options: dict, strict: bool) -> None:
    model = OfSelectedRows(**options)
    x, mask = torch.randn(300, 128), torch.rand(300) < 0.5
    program = torch.export.export(model, (x, mask), strict=strict).module()
    for share in (0.0, 0.3, 1.0):
        mask = torch.rand(300) < share
        result = program(x, mask)
        assert torch.equal(result, expected(x[mask]) if "swizzle" in options else model(x, mask))


@each(swizzle=SWIZZLES)
def test_compiled_with_sizes_that_change(swizzle: str) -> None:
    model = Dequantized(swizzle=swizzle)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows, columns in itertools.product((2, 130), (64, 160)):
        x = torch.randn(rows, columns)
        assert torch.equal(compiled(x), expected(x))
