"""A linear layer after a gate or a gated linear unit: the bits of the separate functions, for half
of their memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch.autograd import grad
from torch.library import opcheck
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional, reference
from tests import bits
from tests.calls import DTYPES, GATES, AsModule, normal
from tests.cases import each
from tests.replace.replacements import SavedBytes

ops = torch.ops.gelu_kernels
SHAPES = [(7, 32), (3, 5, 32), (2, 3, 5, 32), (32,), (0, 32)]
FEATURES = 24
LIMITS = {"limit": 1.5, "up_offset": 1.0}

Result = Callable[..., Tensor]  # of a gate and the tensors


@dataclass(frozen=True)
class Form:
    name: str
    tensors: tuple[str, ...]
    ours: Result
    hidden: Result  # the separate function before the linear layer, of the first tensors

    def __str__(self) -> str:
        return self.name

    def separate(self, gate: str, *tensors: Tensor) -> Tensor:
        named = dict(zip(self.tensors, tensors, strict=True))
        weight, bias = named.pop("weight"), named.pop("bias", None)
        return linear(self.hidden(gate, *named.values()), weight, bias)

    def inputs(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float64, device: str = "cpu"
    ) -> list[Tensor]:
        *rows, hidden = shape
        shapes = {
            "halves": (*rows, 2 * hidden),
            "gate_bias": (hidden,),
            "weight": (FEATURES, hidden),
            "bias": (FEATURES,),
        }
        return [
            normal(*shapes.get(name, shape), dtype=dtype, device=device).requires_grad_()
            for name in self.tensors
        ]


GATE = Form(
    "gate",
    ("x", "weight"),
    lambda gate, x, weight: functional.gate_linear(x, weight, gate=gate),
    lambda gate, x: functional.gate(x, gate=gate),
)
GLU = Form(
    "glu",
    ("x", "up", "weight", "bias"),
    lambda gate, x, up, weight, bias: functional.glu_linear(x, up, weight, bias, gate=gate),
    lambda gate, x, up: functional.glu(x, up, gate=gate),
)
LIMITED_GLU = Form(
    "limited glu",
    ("x", "up", "weight"),
    lambda gate, x, up, weight: functional.glu_linear(x, up, weight, gate=gate, **LIMITS),
    lambda gate, x, up: functional.glu(x, up, gate=gate, **LIMITS),
)
FORMS = [
    GATE,
    Form(
        "gate, biases",
        ("x", "gate_bias", "weight", "bias"),
        lambda gate, x, gate_bias, weight, bias: functional.gate_linear(
            x, weight, bias, gate_bias=gate_bias, gate=gate
        ),
        lambda gate, x, gate_bias: functional.gate(x, gate_bias, gate=gate),
    ),
    GLU,
    LIMITED_GLU,
    Form(
        "halves",
        ("halves", "weight", "bias"),
        lambda gate, x, weight, bias: functional.glu_linear(x, None, weight, bias, gate=gate),
        lambda gate, x: functional.glu(x, gate=gate),
    ),
]
every_form = each(form=FORMS)


def with_gradients(function: Result, gate: str, tensors: list[Tensor]) -> list[Tensor]:
    y = function(gate, *tensors)
    generator = torch.Generator(y.device).manual_seed(1)
    dy = torch.randn(y.shape, dtype=y.dtype, device=y.device, generator=generator)
    return [y, *grad(y, tensors, dy)]


def check_same(form: Form, gate: str, tensors: list[Tensor]) -> None:
    ours, separate = (with_gradients(f, gate, tensors) for f in (form.ours, form.separate))
    for name, a, b in zip(("y", *form.tensors), ours, separate, strict=True):
        assert a.dtype == b.dtype and bits.same(a, b), name
        assert a.stride() == b.stride(), name


def of_reference(form: Form, gate: str, *tensors: Tensor) -> Tensor:
    """In plain PyTorch."""
    named = dict(zip(form.tensors, tensors, strict=True))
    function, bias = getattr(reference, gate), named.get("bias")
    if "halves" in named:
        named["x"], named["up"] = named["halves"].chunk(2, -1)
    x, up = named["x"] + named.get("gate_bias", 0), named.get("up", torch.ones(()))
    if form is LIMITED_GLU:
        x, up = reference.clamp(x, max=1.5), reference.clamp(up, -1.5, 1.5) + 1
    return linear(function(x) * up, named["weight"], bias)


# Bits


@each(form=FORMS, gate=GATES, dtype=DTYPES)
def test_same_bits(form: Form, gate: str, dtype: torch.dtype, device: str) -> None:
    for shape in SHAPES:
        check_same(form, gate, form.inputs(shape, dtype, device))


@each(form=FORMS, layout=["transposed weight", "transposed x", "expanded dy"])
def test_same_bits_in_other_layouts(form: Form, layout: str) -> None:
    tensors = form.inputs((6, 32), torch.float32)
    place = {"transposed weight": form.tensors.index("weight"), "transposed x": 0}.get(layout)
    if place is None:
        ours, separate = (
            grad(f("normal", *tensors).sum(), tensors) for f in (form.ours, form.separate)
        )
        assert all(map(bits.same, ours, separate))
        return
    tensors[place] = tensors[place].detach().t().contiguous().t().requires_grad_()
    check_same(form, "normal", tensors)


@every_form
def test_large(form: Form, device: str) -> None:
    """Products of matrices that torch divides among threads and blocks."""
    for dtype in (torch.float32, torch.bfloat16):
        check_same(form, "normal", form.inputs((4, 130, 384), dtype, device))


@each(
    lambda form, dtype, compiled: compiled,
    form=FORMS,
    dtype=[torch.float32, torch.bfloat16],
    compiled=[False, True],
)
def test_autocast(form: Form, dtype: torch.dtype, compiled: bool) -> None:
    """A hidden layer in either dtype, with parameters in float32."""
    if compiled:
        torch.compiler.reset()
        compile = {"fullgraph": True, "backend": "aot_eager"}
        form = replace(form, ours=torch.compile(form.ours, **compile))
    tensors = form.inputs((5, 32), torch.float32)
    tensors[0] = tensors[0].detach().to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y, separate = (f("normal", *tensors) for f in (form.ours, form.separate))
    assert y.dtype is torch.bfloat16
    assert bits.same(y, separate)
    ours, separate = (grad(t, tensors, torch.ones_like(t)) for t in (y, separate))
    for a, b, t in zip(ours, separate, tensors, strict=True):
        assert a.dtype is b.dtype is t.dtype and bits.same(a, b)


# Memory


@every_form
def test_what_is_saved(form: Form) -> None:
    """Each tensor once, except the bias of the linear layer."""
    tensors = form.inputs((6, 32))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t * 1, lambda t: t):
        y = form.ours("normal", *tensors)
    expected = [t for t, n in zip(tensors, form.tensors, strict=True) if n != "bias"]
    assert {t.data_ptr() for t in saved} == {t.data_ptr() for t in expected}
    assert len(saved) == len(expected)
    dy = torch.randn_like(y)
    torch.testing.assert_close(
        grad(y, tensors, dy), grad(of_reference(form, "normal", *tensors), tensors, dy)
    )


@every_form
def test_saved_bytes(form: Form) -> None:
    tensors = form.inputs((512, 32), torch.bfloat16)
    leaves = [t for t in tensors if t.shape[-1] != 512]
    totals = []
    for function in (form.ours, form.separate):
        with SavedBytes() as saved:
            keep = function("normal", *[t * 1 if t.dim() == 2 else t for t in leaves])
        totals.append(saved.total - tensors[form.tensors.index("weight")].nbytes)
        del keep
    hidden = 512 * 32 * 2
    kept = 1 if form.tensors[0] == "x" and "up" not in form.tensors else 2
    vectors = 64 if "gate_bias" in form.tensors else 0
    assert totals == [kept * hidden + vectors, (kept + 1) * hidden + vectors]


@every_form
def test_frozen_weight_costs_no_recomputation(form: Form) -> None:
    tensors = form.inputs((6, 32))
    place = form.tensors.index("weight")
    tensors[place].requires_grad_(False)
    y, separate = form.ours("normal", *tensors), form.separate("normal", *tensors)
    wanted = [t for t in tensors if t.requires_grad]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ours = grad(y.sum(), wanted)
    assert not [event for event in profile.events() if "linear_backward" in event.name]
    assert all(map(bits.same, ours, grad(separate.sum(), wanted)))


@every_form
def test_each_gradient_alone(form: Form) -> None:
    tensors = form.inputs((6, 32))
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    for place, gradient in enumerate(expected):
        alone = [t.detach().requires_grad_(i == place) for i, t in enumerate(tensors)]
        (ours,) = grad(form.ours("normal", *alone).sum(), alone[place])
        assert bits.same(ours, gradient)


def compiled_graphs(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[list[Tensor]]:
    """The results of the forward graph; all but the first are saved for backward."""
    kept = []

    def compiler(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        (output,) = module.graph.find_nodes(op="output")
        kept.append([node.meta["val"] for node in output.args[0] if node is not None])
        return module.forward

    backend = aot_autograd(
        fw_compiler=lambda m, i: make_boxed_func(compiler(m, i)),
        bw_compiler=lambda m, i: make_boxed_func(m.forward),
        partition_fn=min_cut_rematerialization_partition,
    )
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    compiled(*tensors).sum().backward()
    return kept[0]


def hidden_tensors(kept: list[Tensor]) -> int:
    return sum(t.shape == (64, 32) for t in kept)


@every_form
def test_compiler_keeps_no_result(form: Form) -> None:
    """The compiler does not notice that forward has computed the hidden tensor already."""
    tensors = form.inputs((64, 32))
    kept = compiled_graphs(lambda *t: form.ours("normal", *t), tensors)
    assert hidden_tensors(kept) == sum(name in ("x", "up") for name in form.tensors)
    kept = compiled_graphs(lambda *t: form.separate("normal", *t), tensors)
    assert hidden_tensors(kept) == 1 + sum(name in ("x", "up") for name in form.tensors)


@each(case=[(GATE, 1, [2, 1]), (GLU, 2, [3, 1])])
def test_compilers_own_budget(case: tuple[Form, int, list[int]]) -> None:
    """docs/guide/memory.md: where the whole layer is compiled, torch recomputes the separate
    operators if its budget is half of the memory."""
    form, inputs, kept = case
    tensors = form.inputs((64, 32))
    before = [normal(64, 8), *[normal(32, 8).requires_grad_() for _ in range(inputs)]]

    def layer(input: Tensor, *tensors: Tensor) -> Tensor:
        hidden = [linear(input, weight) for weight in tensors[:inputs]]
        return form.separate("normal", *hidden, *tensors[inputs:])

    tensors = [*before, *tensors[inputs:]]
    found = []
    for budget in (1.0, 0.5):
        with functorch_config.patch(activation_memory_budget=budget):
            found.append(hidden_tensors(compiled_graphs(layer, tensors)))
    assert found == kept


# Modes


@each(lambda form, gate: gate != GATES[0], form=FORMS, gate=GATES)
def test_gradients(form: Form, gate: str) -> None:
    """Of both orders and in forward mode, compared with finite differences."""
    tensors = form.inputs((2, 3, 4))

    def function(*tensors: Tensor) -> Tensor:
        return form.ours(gate, *tensors)

    torch.autograd.gradcheck(function, tensors, check_forward_ad=True, check_batched_grad=True)
    torch.autograd.gradgradcheck(function, tensors)


@every_form
def test_functional_transforms(form: Form) -> None:
    tensors = [t.detach() for t in form.inputs((5, 32))]
    places = tuple(range(len(tensors)))

    def loss(*tensors: Tensor) -> Tensor:
        return form.ours("normal", *tensors).square().sum()

    leaves = [t.clone().requires_grad_() for t in tensors]
    expected = grad(of_reference(form, "normal", *leaves).square().sum(), leaves)
    torch.testing.assert_close(torch.func.grad(loss, places)(*tensors), expected)

    batches = [torch.stack([t, t + 1]) for t in tensors]
    for in_dims in (0, (0, *[None] * (len(tensors) - 1))):
        given = batches if in_dims == 0 else [batches[0], *tensors[1:]]
        found = torch.vmap(torch.func.grad(loss, places), in_dims)(*given)
        for i in range(2):
            of_one = [b[i] if in_dims == 0 or k == 0 else b for k, b in enumerate(given)]
            one = torch.func.grad(loss, places)(*of_one)
            torch.testing.assert_close([t[i] for t in found], list(one))


@each(form=FORMS, reentrant=[True, False])
def test_checkpoint(form: Form, reentrant: bool) -> None:
    tensors = form.inputs((5, 32))
    y = checkpoint(form.ours, "normal", *tensors, use_reentrant=reentrant)
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    y.sum().backward()
    assert all(bits.same(t.grad, e) for t, e in zip(tensors, expected, strict=True))


@each(lambda form, backend: backend == "inductor", form=FORMS, backend=["aot_eager", "inductor"])
def test_compiled(form: Form, backend: str) -> None:
    """For all shapes; Inductor sums the gradient of the bias in an order of its own."""
    torch.compiler.reset()
    ours = torch.compile(form.ours, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((5, 32), (9, 32)):
        tensors = form.inputs(shape)
        found, separate = (with_gradients(f, "normal", tensors) for f in (ours, form.separate))
        for name, a, b in zip(("y", *form.tensors), found, separate, strict=True):
            if backend == "inductor" and name == "bias":
                torch.testing.assert_close(a, b)
            else:
                assert bits.same(a, b), name


@every_form
def test_compiled_autograd(form: Form) -> None:
    tensors = form.inputs((5, 32))
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    y = form.ours("normal", *tensors)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        y.sum().backward()
    assert all(bits.same(t.grad, e) for t, e in zip(tensors, expected, strict=True))


@each(form=FORMS, strict=[False, True])
def test_export(form: Form, strict: bool) -> None:
    tensors = tuple(t.detach() for t in form.inputs((5, 32)))
    layer = AsModule(partial(form.ours, "normal"))
    exported = torch.export.export(layer, tensors, strict=strict).module()
    assert bits.same(exported(*tensors), form.separate("normal", *tensors))


X, UP, WEIGHT, BIAS, DY = (5, 32), (5, 32), (24, 32), (24,), (5, 24)


OPERATORS = [
    ("gate_linear", (X, WEIGHT, BIAS), {"gate": "normal"}),
    ("glu_linear", (X, UP, WEIGHT, BIAS), {"gate": "normal"}),
    ("glu_linear", ((5, 64), None, WEIGHT), {"gate": "normal", **LIMITS}),
    ("gate_linear_backward_weight", (DY, X, (32,), "normal"), {}),
    ("gate_linear_backward_weight", (DY, X, None, "normal", True), {}),
    ("glu_linear_backward_weight", (DY, X, UP, "normal"), {}),
    ("glu_linear_backward_weight", (DY, (5, 64), None, "normal", 1.5, 1.0, True), {}),
]


@each(case=OPERATORS)
def test_opcheck(case: tuple[str, tuple, dict[str, object]]) -> None:
    op, shapes, options = case
    arguments = [
        normal(*s, dtype=torch.float32).requires_grad_() if isinstance(s, tuple) else s
        for s in shapes
    ]
    opcheck(getattr(ops, op).default, tuple(arguments), options)


@every_form
def test_inference_mode(form: Form) -> None:
    tensors = form.inputs((5, 32))
    with torch.inference_mode():
        y = form.ours("normal", *tensors)
    assert y.is_inference()
    assert bits.same(y.clone(), form.separate("normal", *tensors).detach())


def test_jagged() -> None:
    """As the separate functions; torch computes the gradients."""
    lengths = 3, 5
    parts = [normal(n, 32) for n in lengths]
    weight = normal(FEATURES, 32).requires_grad_()
    x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    y = functional.gate_linear(x, weight)
    expected = linear(reference.normal(torch.cat(parts)), weight)
    torch.testing.assert_close(y.values(), expected)
    y.values().sum().backward()
    whole = torch.cat(parts).requires_grad_()
    of_x, of_weight = grad(linear(reference.normal(whole), weight).sum(), (whole, weight))
    torch.testing.assert_close(weight.grad, of_weight)
    torch.testing.assert_close(x.grad.values(), of_x)


# Parameters of other types


class OnlyTorch(Tensor):
    """A weight that only torch's own functions take."""

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if "gelu_kernels" in str(function):
            return NotImplemented
        return super().__torch_function__(function, types, args, kwargs or {})


@every_form
def test_parameters_of_a_subclass_of_tensor(form: Form) -> None:
    tensors = form.inputs((6, 32))
    expected = of_reference(form, "normal", *tensors)
    dy = torch.randn_like(expected)
    gradients = grad(expected, tensors, dy)
    for name in {"weight", "bias"} & set(form.tensors):
        given = list(tensors)
        place = form.tensors.index(name)
        given[place] = tensors[place].as_subclass(OnlyTorch)
        y = form.ours("normal", *given).as_subclass(Tensor)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(grad(y, tensors, dy), gradients)


# Bad input


def bad_inputs() -> list[tuple]:
    x, up, weight, bias, dy = (torch.zeros(s) for s in (X, UP, WEIGHT, BIAS, DY))
    odd, half = x[:, :31], torch.float16
    of_gate = [
        (TypeError, "x must be float64", (x.int(), weight), {}),
        (TypeError, "x must be a strided", (x.to_sparse(), weight), {}),
        (ValueError, "x must have a last", (torch.zeros(()), weight), {}),
        (ValueError, "weight must be 2-d", (x, bias), {}),
        (ValueError, "weight must have a column", (x, weight.t()), {}),
        (TypeError, "weight must have the dtype", (x, weight.to(half)), {}),
        (TypeError, "weight must be a strided", (x, weight.to_sparse()), {}),
        (ValueError, "weight must be on the device", (x, weight.to("meta")), {}),
        (ValueError, "bias must be a vector", (x, weight, up), {}),
        (TypeError, "bias must have the dtype", (x, weight, bias.to(half)), {}),
        (ValueError, "bias must be on the device", (x, weight, bias.to("meta")), {}),
        (ValueError, "gate_bias must be as long", (x, weight), {"gate_bias": bias}),
        (ValueError, "gate_bias must be 1-d", (x, weight), {"gate_bias": up}),
        (TypeError, "gate_bias must have the dtype", (x, weight), {"gate_bias": up[0].to(half)}),
        (ValueError, "gate must be one of", (x, weight), {"gate": "none"}),
    ]
    of_glu = [
        (ValueError, "up must have the shape", (x, up[1:], weight), {}),
        (TypeError, "up must have the dtype", (x, up.to(half), weight), {}),
        (ValueError, "the last dimension of x must be even", (odd, None, weight), {}),
        (ValueError, "weight must have a column", (x, None, weight), {}),
        (ValueError, "limit must be positive", (x, up, weight), {"limit": 0.0}),
        (ValueError, "up_offset must be finite", (x, up, weight), {"up_offset": torch.nan}),
        (ValueError, "gate must be one of", (x, up, weight), {"gate": ""}),
    ]
    of_gates_weight = [
        (ValueError, "dy must have a row", (dy[1:], x, None, "normal"), {}),
        (TypeError, "dy must be float64", (dy.int(), x, None, "normal"), {}),
        (ValueError, "dy must be on the device", (dy.to("meta"), x, None, "normal"), {}),
        (ValueError, "bias must be as long", (dy, x, bias, "normal"), {}),
        (ValueError, "gate must be one of", (dy, x, None, "none"), {}),
    ]
    of_glus_weight = [
        (ValueError, "dy must have a row", (dy[1:], x, up, "normal"), {}),
        (ValueError, "up must have the shape", (dy, x, up[1:], "normal"), {}),
        (ValueError, "the last dimension of x must be even", (dy, odd, None, "normal"), {}),
        (ValueError, "limit must be positive", (dy, x, up, "normal", -1.0), {}),
    ]
    by_operator = {
        "gate_linear": of_gate,
        "glu_linear": of_glu,
        "gate_linear_backward_weight": of_gates_weight,
        "glu_linear_backward_weight": of_glus_weight,
    }
    return [(op, *case) for op, cases in by_operator.items() for case in cases]


@each(case=bad_inputs())
def test_bad_input(case: tuple) -> None:
    op, error, message, arguments, options = case
    with pytest.raises(error, match=f"gelu_kernels::{op}: {message}"):
        getattr(ops, op)(*arguments, **options)


def test_autocast_takes_no_float64_weight() -> None:
    """As torch's own linear layer."""
    x, weight = torch.zeros(5, 32), torch.zeros(24, 32, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="weight must have"):
        functional.gate_linear(x, weight)
