"""Bad input: a Python exception that names the operator and the argument, by every route."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gelu_kernels import functional, nn

ops = torch.ops.gelu_kernels

GELU = {
    "torch.ops": lambda x, a="none": ops.fused_gelu(x, approximate=a),
    "functional": lambda x, a="none": functional.gelu(x, approximate=a),
    "nn": lambda x, a="none": nn.GELU(a)(x),
}
BIAS_GELU = {
    "torch.ops": lambda x, bias, a="none": ops.fused_bias_gelu(x, bias, approximate=a),
    "functional": lambda x, bias, a="none": functional.bias_gelu(x, bias, approximate=a),
}
# The core operators, as functions of x, or of a tensor that is to be like x, and of a bias.
OF_X: dict[str, Callable[..., object]] = {
    "gate_forward": lambda x, bias=None: ops.gate_forward(x, bias, "normal"),
    "gate_backward": lambda x, bias=None: ops.gate_backward(x, x, bias, "normal"),
    "gate_backward_bias": lambda x, bias=None: ops.gate_backward_bias(
        x, x, torch.zeros(3) if bias is None else bias, "normal"
    ),
    "gate_double_backward": lambda x, bias=None: ops.gate_double_backward(x, x, x, bias, "normal"),
}


BAD_X: dict[str, tuple[Callable[[], Tensor], str]] = {
    "int64": (lambda: torch.ones(2, 3, dtype=torch.int64), "x must be float64.* got (Long|long)"),
    "uint8": (lambda: torch.ones(2, 3, dtype=torch.uint8), "x must be float64.*"),
    "bool": (lambda: torch.ones(2, 3, dtype=torch.bool), "x must be float64.* got (Bool|bool)"),
    "complex": (lambda: torch.ones(2, 3, dtype=torch.complex64), "x must be float64.*"),
    "float8": (lambda: torch.ones(2, 3).to(torch.float8_e4m3fn), "x must be float64.*"),
    "COO": (lambda: torch.ones(2, 3).to_sparse(), "x must be a strided tensor, got .*Sparse"),
    "CSR": (lambda: torch.ones(2, 3).to_sparse_csr(), "x must be a strided tensor.*"),
    "mkldnn": (lambda: torch.ones(2, 3).to_mkldnn(), "x must be a strided tensor.*"),
    "integer and sparse": (lambda: torch.ones(2, 3).long().to_sparse(), "x must be .*"),
}

BAD_BIAS: dict[str, tuple[Callable[[], Tensor], type[Exception], str]] = {
    "too short": (lambda: torch.ones(2), ValueError, "bias must be as long .*3, got length 2"),
    "too long": (lambda: torch.ones(4), ValueError, "bias must be as long .*3, got length 4"),
    "one for all": (lambda: torch.ones(1), ValueError, "bias must be as long .*3, got length 1"),
    "0-d": (lambda: torch.tensor(1.0), ValueError, "bias must be 1-d, got 0 dimensions"),
    "2-d": (lambda: torch.ones(1, 3), ValueError, "bias must be 1-d, got 2 dimensions"),
    "like x": (lambda: torch.ones(2, 3), ValueError, "bias must be 1-d, got 2 dimensions"),
    "wider": (lambda: torch.ones(3).double(), TypeError, "bias must have the dtype of x, .*"),
    "narrower": (lambda: torch.ones(3).half(), TypeError, "bias must have the dtype of x, .*"),
    "integer": (lambda: torch.ones(3).int(), TypeError, "bias must have the dtype of x, .*"),
    "elsewhere": (lambda: torch.ones(3, device="meta"), ValueError, "bias must be on the device.*"),
    "sparse": (lambda: torch.ones(3).to_sparse(), TypeError, "bias must be a strided tensor.*"),
}


pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


@pytest.fixture(params=["eager", "grad", "no_grad", "inference"])
def mode(request):
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(request.param)
    if context is None:
        yield request.param
    else:
        with context():
            yield request.param


@pytest.mark.parametrize("route", GELU)
@pytest.mark.parametrize("kind", BAD_X)
def test_x_of_gelu(kind, route, mode):
    x, message = BAD_X[kind]
    x = x()
    if mode == "grad" and (x.is_floating_point() or x.is_complex()):
        x.requires_grad_()
    with pytest.raises(TypeError, match=f"fused_gelu: {message}"):
        GELU[route](x)


@pytest.mark.parametrize("route", BIAS_GELU)
@pytest.mark.parametrize("kind", BAD_X)
def test_x_of_bias_gelu(kind, route, mode):
    x, message = BAD_X[kind]
    with pytest.raises(TypeError, match=f"fused_bias_gelu: {message}"):
        BIAS_GELU[route](x(), torch.ones(3, requires_grad=mode == "grad"))


@pytest.mark.parametrize("op", OF_X)
@pytest.mark.parametrize("kind", BAD_X)
def test_x_of_the_core_operators(kind, op):
    x, message = BAD_X[kind]
    # No kernel is registered for sparse tensors: the dispatcher says so.
    error = TypeError if x().layout == torch.strided else NotImplementedError
    match = f"{op}: {message}" if error is TypeError else f"gelu_kernels::{op}.*(Sparse|Mkldnn)"
    with pytest.raises(error, match=match):
        OF_X[op](x())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # deprecated in torch 2.13
def test_quantised():
    x = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    for f in GELU.values():
        with pytest.raises(TypeError, match="fused_gelu: x must be float64"):
            f(x)
    for f in BIAS_GELU.values():
        with pytest.raises(TypeError, match="fused_bias_gelu: x must be float64"):
            f(x, torch.ones(3))


@pytest.mark.parametrize("route", BIAS_GELU)
@pytest.mark.parametrize("kind", BAD_BIAS)
def test_bias(kind, route, mode):
    bias, error, message = BAD_BIAS[kind]
    x = torch.ones(2, 3, requires_grad=mode == "grad")
    with pytest.raises(error, match=f"fused_bias_gelu: {message}"):
        BIAS_GELU[route](x, bias())


@pytest.mark.parametrize("op", OF_X)
@pytest.mark.parametrize("kind", [k for k in BAD_BIAS if k != "sparse"])
def test_bias_of_the_core_operators(kind, op):
    bias, error, message = BAD_BIAS[kind]
    # With a tensor on meta among them, the arguments go to the kernel for meta.
    with pytest.raises(error, match=f"{op}: {message}"):
        OF_X[op](torch.ones(2, 3), bias())


@pytest.mark.parametrize("route", BIAS_GELU)
def test_scalar_with_bias(route):
    with pytest.raises(ValueError, match="fused_bias_gelu: x must have a last dimension"):
        BIAS_GELU[route](torch.tensor(1.0), torch.ones(1))


@pytest.mark.parametrize("approximate", ["", "None", "Tanh", "erf", "normal", "tanh\0", "é"])
def test_unknown_approximate(approximate, mode):
    x, bias = torch.ones(2, 3, requires_grad=mode == "grad"), torch.ones(3)
    message = "approximate must be one of 'none' 'tanh' 'sigmoid', got '"
    for f in GELU.values():
        with pytest.raises(ValueError, match=f"fused_gelu: {message}"):
            f(x, approximate)
    for f in BIAS_GELU.values():
        with pytest.raises(ValueError, match=f"fused_bias_gelu: {message}"):
            f(x, bias, approximate)


@pytest.mark.parametrize("gate", ["", "none", "Normal", "logistic"])
def test_unknown_gate(gate):
    x, bias = torch.ones(2, 3), torch.ones(3)
    message = f"gate must be one of 'normal' 'normal_tanh' 'logistic_1702', got '{gate}'"
    for op, tensors in (
        (ops.gate_forward, (x, None)),
        (ops.gate_forward, (x, bias)),
        (ops.gate_backward, (x, x, bias)),
        (ops.gate_backward_bias, (x, x, bias)),
        (ops.gate_double_backward, (x, x, x, bias)),
    ):
        with pytest.raises(ValueError, match=f"{op.__name__}: {message}"):
            op(*tensors, gate)
        recorded = [t if t is None else t.clone().requires_grad_() for t in tensors]
        with pytest.raises(ValueError, match=message):
            op(*recorded, gate)


@pytest.mark.parametrize(
    "bad, error, message",
    [
        (lambda: torch.ones(3, 2), ValueError, "must have the shape of x, .2, 3., got .3, 2."),
        (lambda: torch.ones(3), ValueError, "must have the shape of x"),
        (lambda: torch.ones(1, 3), ValueError, "must have the shape of x"),
        (lambda: torch.tensor(1.0), ValueError, "must have the shape of x"),
        (lambda: torch.ones(2, 3).double(), TypeError, "must have the dtype of x"),
        (lambda: torch.ones(2, 3).half(), TypeError, "must have the dtype of x"),
        (lambda: torch.ones(2, 3).long(), TypeError, "must have the dtype of x"),
        (lambda: torch.ones(2, 3, device="meta"), ValueError, "must be on the device of x"),
    ],
)
def test_incoming_gradients(bad, error, message):
    x, bias, bad = torch.ones(2, 3), torch.ones(3), bad()
    for op, argument, tensors in (
        (ops.gate_backward, "dy", (bad, x, None)),
        (ops.gate_backward, "dy", (bad, x, bias)),
        (ops.gate_backward_bias, "dy", (bad, x, bias)),
        (ops.gate_double_backward, "dy", (x, bad, x, bias)),
        (ops.gate_double_backward, "ddx", (bad, x, x, None)),
    ):
        with pytest.raises(error, match=f"{op.__name__}: {argument} {message}"):
            op(*tensors, "normal")


@pytest.mark.parametrize(
    "bad", [None, 1.0, [1.0], "x", object()], ids=lambda bad: type(bad).__name__
)
def test_arguments_that_are_no_tensors(bad):
    x = torch.ones(2, 3)
    for f in GELU.values():
        with pytest.raises((TypeError, ValueError, RuntimeError), match="gelu"):
            f(bad)
    for f in BIAS_GELU.values():
        with pytest.raises((TypeError, ValueError, RuntimeError), match="bias_gelu"):
            f(x, bad)
        with pytest.raises((TypeError, ValueError, RuntimeError), match="bias_gelu"):
            f(bad, x[0])


@pytest.mark.parametrize("bad", [None, 1, ["none"]], ids=repr)
def test_approximate_that_is_no_string(bad):
    for f in GELU.values():
        with pytest.raises((TypeError, ValueError, RuntimeError), match="gelu"):
            f(torch.ones(2, 3), bad)


@pytest.mark.parametrize("kind", ["int64", "bool", "complex", "float8"])
def test_x_on_meta(kind):
    x, message = BAD_X[kind]
    x = x().to("meta")
    with pytest.raises(TypeError, match=f"fused_gelu: {message}"):
        functional.gelu(x)
    for op, f in OF_X.items():
        with pytest.raises(TypeError, match=f"{op}: {message}"):
            f(x, torch.ones(3, device="meta"))


@pytest.mark.parametrize("kind", [k for k in BAD_BIAS if k not in ("sparse", "elsewhere")])
def test_bias_on_meta(kind):
    bias, error, message = BAD_BIAS[kind]
    x = torch.ones(2, 3, device="meta")
    with pytest.raises(error, match=f"fused_bias_gelu: {message}"):
        functional.bias_gelu(x, bias().to("meta"))


@pytest.mark.parametrize(
    "x, bias, approximate, message",
    [
        (torch.ones(2, 3).long(), torch.ones(3), "none", "x must be float64"),
        (torch.ones(2, 3), torch.ones(4), "none", "bias must be as long"),
        (torch.ones(2, 3), torch.ones(3).double(), "none", "bias must have the dtype"),
        (torch.ones(2, 3), torch.ones(3), "erf", "approximate must be one of"),
    ],
)
def test_under_compile(x, bias, approximate, message):
    torch._dynamo.reset()
    f = torch.compile(functional.bias_gelu, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=f"fused_bias_gelu: {message}"):
        f(x, bias, approximate=approximate)


def test_autocast_casts_no_integers():
    with torch.autocast("cpu", torch.bfloat16):
        for f in BIAS_GELU.values():
            with pytest.raises(TypeError, match="fused_bias_gelu: bias must have the dtype of x"):
                f(torch.ones(2, 3), torch.ones(3).int())


def test_under_vmap():
    with pytest.raises(ValueError, match="bias must be as long"):
        torch.vmap(functional.bias_gelu)(torch.ones(4, 2, 3), torch.ones(4, 2))
    with pytest.raises(TypeError, match="fused_gelu: x must be float64"):
        torch.vmap(functional.gelu)(torch.ones(4, 2).long())
    with pytest.raises(ValueError, match="gate_backward: dy must have the shape of x"):
        torch.vmap(lambda dy, x: ops.gate_backward(dy, x, None, "normal"))(
            torch.ones(4, 2, 3), torch.ones(4, 3)
        )
