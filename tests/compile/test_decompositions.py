"""gelu_kernels.decompositions: programs without our operators, forward and backward, compared with
float64. Run by onnxruntime: test_onnx.py.
"""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import aot_function, make_boxed_func
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gelu_kernels import decompositions, functional, nn, reference
from tests.calls import CORE_CALLS, DTYPES, GATES, PUBLIC_CALLS, AsModule, Call, as_tuple, normal
from tests.cases import each
from tests.compile.comparison import bf16_close, close
from tests.everything import function, sample_of
from tests.oracles import oracle

ops = torch.ops.gelu_kernels
TABLE = decompositions()
WITHOUT_FORM = "soi", "dropout", "coded", "quantized"
CORE = [call for call in CORE_CALLS if call.op.family not in WITHOUT_FORM]
PUBLIC = [call for call in PUBLIC_CALLS if call.op.family not in WITHOUT_FORM]


def targets(graph: torch.fx.Graph) -> set[object]:
    return {node.target for node in graph.nodes if node.op == "call_function"}


def ours(targets: Iterable[object]) -> list[str]:
    return [str(target) for target in targets if "gelu_kernels" in str(target)]


def test_every_operator_is_in_the_table() -> None:
    """Except those that only DTensors call."""
    names = {n for n in torch._C._dispatch_get_all_op_names() if n.startswith("gelu_kernels::")}
    names -= {"gelu_kernels::draw_shard", "gelu_kernels::random_seed"}
    assert {op.name() for op in TABLE} == names


@each(call=CORE, dtype=DTYPES)
def test_core_operators(call: Call, dtype: torch.dtype) -> None:
    for gate in call.gates:
        sample = call.sample((7, 12), partial(normal, dtype=dtype), gate)
        arguments, named = call.arguments(*sample.tensors, gate=gate)
        results = as_tuple(TABLE[call.op.overload](*arguments, **named))
        wide = {"rtol": 1e-13, "atol": 1e-13} if dtype == torch.float64 else close
        for y, expected in zip(results, sample.expected(), strict=True):
            assert y.dtype == dtype
            tolerance = bf16_close if dtype.itemsize == 2 else wide
            torch.testing.assert_close(y.double(), expected, **tolerance)


def expected_of(gate: str, order: int, x: Tensor) -> Tensor:
    """The gate or its derivative, in float64."""
    if x.dtype == torch.float64:
        numbers = [float(oracle.exact(gate, order, number)) for number in x.tolist()]
        return torch.tensor(numbers, dtype=torch.float64)
    return torch.from_numpy(oracle.reference(gate, order, x.double().numpy()))


@each(gate=GATES, dtype=DTYPES)
def test_error_of_a_gate(gate: str, dtype: torch.dtype) -> None:
    """The value is within 4 eps abs(x), the derivative within 8 eps, for the eps of float64 or
    float32; 16-bit results may be half a unit further off."""
    x = torch.linspace(-40, 40, 801 if dtype == torch.float64 else 80001, dtype=torch.float64)
    x = x.to(dtype)
    y = TABLE[ops.gate_forward.default](x, None, gate)
    dx = TABLE[ops.gate_backward.default](torch.ones_like(x), x, None, gate)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    eps, half_unit = torch.finfo(wide).eps, torch.finfo(dtype).eps / 2 * (dtype != wide)
    least = torch.finfo(dtype).smallest_normal
    for result, order, factor in (
        (y, oracle.VALUE, 4 * x.double().abs()),
        (dx, oracle.DERIVATIVE, 8.0),
    ):
        expected = expected_of(gate, order, x)
        bound = eps * factor + half_unit * expected.abs() + least
        assert ((result.double() - expected).abs() <= bound).all()


def test_a_bias_is_added_in_float32() -> None:
    """1 + 2^-8 is no bfloat16: a rounded sum would put the result a unit off."""
    x, bias = torch.ones(1, 1).bfloat16(), torch.tensor([2.0**-8]).bfloat16()
    y = TABLE[ops.gate_forward.default](x, bias, "laplace")
    exact = reference.laplace(x.double() + bias.double())
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=2**-9)
    of_rounded_sum = TABLE[ops.gate_forward.default](x + bias, None, "laplace")
    assert (of_rounded_sum.double() - exact).abs() > 2**-9


def forms(*tensors: list[Tensor]) -> list[Tensor]:
    """Every form of a public operator that ATen can express, with every gate that it takes."""
    return [
        call.function(gate)(*operands)
        for call, operands in zip(PUBLIC, tensors, strict=True)
        for gate in call.gates
    ]


def test_programs(device: str) -> None:
    samples = [call.sample((6, 4), lambda *s: torch.randn(s, device=device)) for call in PUBLIC]
    program = torch.export.export(AsModule(forms), tuple(sample.tensors for sample in samples))
    program = program.run_decompositions(decompositions())
    assert not ours(targets(program.graph))
    results = iter(program.module()(*[sample.tensors for sample in samples]))
    for call, sample in zip(PUBLIC, samples, strict=True):
        for gate in call.gates:
            sample.gate = gate
            (expected,) = sample.expected()
            torch.testing.assert_close(next(results).double(), expected, **close)


class Inference(torch.nn.Module):
    """Modules and functions that are random or coded only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.coded = nn.BiasGELU(4, save="4bit", dither=True)
        self.soi = nn.SOIMap("laplace")

    def forward(self, x: Tensor) -> list[Tensor]:
        training = self.training
        return [
            self.coded(x),
            self.soi(x),
            functional.gate_dropout(x, p=0.5, gate="cauchy", training=training),
            functional.gate_dropout(x, p=0.0, gate="cauchy", save="8bit"),
            functional.bias_gelu_dropout(x, x[0], 0.5, training=training),
            functional.glu_dropout(x, p=0.5, training=training),
        ]


def test_programs_of_inference() -> None:
    x = torch.randn(6, 4)
    program = torch.export.export(Inference().eval(), (x,))
    program = program.run_decompositions(decompositions())
    assert not ours(targets(program.graph))
    wide = x.double()
    cauchy, halves = reference.cauchy(wide), wide.chunk(2, -1)
    expected = [
        reference.normal(wide),
        reference.laplace(wide),
        cauchy,
        cauchy,
        reference.normal(wide + wide[0]),
        reference.normal(halves[0]) * halves[1],
    ]
    results = [y.double() for y in program.module()(x)]
    torch.testing.assert_close(results, expected, **close)


@each(call=PUBLIC)
def test_gradients(call: Call, device: str) -> None:
    sample = sample_of(call, device)
    leaves, doubles = sample.leaves(), sample.leaves(torch.float64)

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(call)(*tensors).square().sum(), tensors)

    traced = make_fx(gradients, decompositions())(*leaves)
    assert not ours(targets(traced.graph))
    expected = torch.autograd.grad(sample.expected(*doubles)[0].square().sum(), doubles)
    results = tuple(dx.double() for dx in traced(*leaves))
    torch.testing.assert_close(results, expected, rtol=4e-6, atol=4e-6)


def test_second_derivatives() -> None:
    def second(x: Tensor) -> Tensor:
        (dx,) = torch.autograd.grad(functional.gelu(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), x)[0]

    x = torch.randn(50, requires_grad=True)
    traced = make_fx(second, decompositions())(x)
    assert not ours(targets(traced.graph))
    wide = x.detach().double().requires_grad_()
    (dx,) = torch.autograd.grad(reference.normal(wide).square().sum(), wide, create_graph=True)
    (expected,) = torch.autograd.grad(dx.square().sum(), wide)
    torch.testing.assert_close(traced(x).double(), expected, rtol=1e-5, atol=1e-5)


def linear_layers(x: Tensor, weight: Tensor, bias: Tensor, gate_bias: Tensor) -> Tensor:
    y = functional.gate_linear(x, weight, bias, gate_bias=gate_bias, gate="logistic")
    wide = torch.cat([y, x.tanh()], -1)
    return y + functional.glu_linear(wide, None, weight, bias, gate="normal_tanh")


def plain_layers(x: Tensor, weight: Tensor, bias: Tensor, gate_bias: Tensor) -> Tensor:
    y = F.linear(reference.logistic(x + gate_bias), weight, bias)
    return y + F.linear(reference.normal_tanh(y) * x.tanh(), weight, bias)


@each(transposed=[False, True])
def test_training_by_aot_autograd(transposed: bool) -> None:
    """Forward and backward graphs of linear layers after a gate."""
    graphs = []

    def compiler(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return make_boxed_func(graph)

    x, weight = torch.randn(6, 4), torch.randn(4, 4)
    tensors = [x, weight.t() if transposed else weight, torch.randn(4), torch.randn(4)]
    leaves = [t.detach().requires_grad_() for t in tensors]
    doubles = [t.double().requires_grad_() for t in tensors]
    compiled = aot_function(linear_layers, compiler, compiler, decompositions=decompositions())
    y, expected = compiled(*leaves), plain_layers(*doubles)
    y.square().sum().backward()
    expected.square().sum().backward()
    assert len(graphs) == 2 and not ours(set.union(*(targets(g.graph) for g in graphs)))
    results = [y.detach().double(), *(t.grad.double() for t in leaves)]
    wanted = [expected.detach(), *(t.grad for t in doubles)]
    torch.testing.assert_close(results, wanted, rtol=1e-5, atol=1e-4)


def test_together_with_torchs_own() -> None:
    """To Core ATen in one pass."""
    table = torch.export.default_decompositions()
    table.update(decompositions())
    program = torch.export.export(nn.MLP(4, 8), (torch.randn(3, 4),)).run_decompositions(table)
    assert torch.ops.aten.linear.default not in targets(program.graph)
    assert not ours(targets(program.graph))


@each(
    refused=[
        (nn.SOIMap(), r"soi_forward .* random numbers: call model.eval\(\) before"),
        (lambda x: functional.bias_soi_map(x, x[0]), r"soi_forward .* call model.eval\(\)"),
        (lambda x: functional.soi_map(x, loc=0.5), r"soi_cdf_forward .* call model.eval\(\)"),
        (
            lambda x: functional.gate_dropout(x, gate="normal"),
            r"gate_dropout_forward .* random numbers: call model.eval\(\) before .*, or pass "
            "training=False",
        ),
        (functional.glu_dropout, r"glu_dropout_halves_forward .* call model.eval\(\)"),
        (functional.quantized_gate, "quantized_gate_forward .* is not quantised"),
        (functional.quantized_swiglu, "quantized_glu_forward .* is not quantised"),
    ],
)
def test_what_has_no_form_says_what_to_do(refused: tuple[Callable, str]) -> None:
    f, message = refused
    program = torch.export.export(AsModule(f), (torch.randn(3, 64),))
    with pytest.raises(NotImplementedError, match=f"gelu_kernels::{message}"):
        program.run_decompositions(decompositions())


def test_codes_of_a_gradient_have_no_form() -> None:
    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(functional.gelu(x, save="8bit").sum(), x)[0]

    with pytest.raises(NotImplementedError, match="coded_forward .* leave save= out"):
        make_fx(gradient, decompositions())(torch.randn(3, requires_grad=True))
