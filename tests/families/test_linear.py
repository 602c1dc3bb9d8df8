"""A linear layer after a gate or a gated linear unit: the bits of the separate functions, for half
of their memory. In models: test_replace_recompute.py. On DTensors: test_distributed.py."""

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

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

from gelu_kernels import functional, nn, reference
from tests import bits
from tests.calls import DTYPES, GATES, normal
from tests.replace.replacements import SavedBytes

ops = torch.ops.gelu_kernels
SHAPES = [(7, 32), (3, 5, 32), (2, 3, 5, 32), (32,), (0, 32)]
FEATURES = 24
LIMITED = {"limit": 1.5, "up_offset": 1.0}

Result = Callable[..., Tensor]  # of a gate and the tensors


class Form(NamedTuple):
    tensors: tuple[str, ...]
    ours: Result
    hidden: Result  # the separate function before the linear layer, of the first tensors

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


FORMS = {
    "gate": Form(
        ("x", "weight"),
        lambda gate, x, weight: functional.gate_linear(x, weight, gate=gate),
        lambda gate, x: functional.gate(x, gate=gate),
    ),
    "gate, biases": Form(
        ("x", "gate_bias", "weight", "bias"),
        lambda gate, x, gate_bias, weight, bias: functional.gate_linear(
            x, weight, bias, gate_bias=gate_bias, gate=gate
        ),
        lambda gate, x, gate_bias: functional.gate(x, gate_bias, gate=gate),
    ),
    "glu": Form(
        ("x", "up", "weight", "bias"),
        lambda gate, x, up, weight, bias: functional.glu_linear(x, up, weight, bias, gate=gate),
        lambda gate, x, up: functional.glu(x, up, gate=gate),
    ),
    "glu, limited": Form(
        ("x", "up", "weight"),
        lambda gate, x, up, weight: functional.glu_linear(x, up, weight, gate=gate, **LIMITED),
        lambda gate, x, up: functional.glu(x, up, gate=gate, **LIMITED),
    ),
    "halves": Form(
        ("halves", "weight", "bias"),
        lambda gate, x, weight, bias: functional.glu_linear(x, None, weight, bias, gate=gate),
        lambda gate, x: functional.glu(x, gate=gate),
    ),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return FORMS[request.param]


def with_gradients(function: Result, gate: str, tensors: list[Tensor]) -> list[Tensor]:
    y = function(gate, *tensors)
    torch.manual_seed(1)
    return [y, *grad(y, tensors, torch.randn_like(y))]


few_gates = pytest.mark.parametrize(
    "gate", [GATES[0], *[pytest.param(gate, marks=pytest.mark.slow) for gate in GATES[1:]]]
)


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
    if form is FORMS["glu, limited"]:
        x, up = reference.clamp(x, max=1.5), reference.clamp(up, -1.5, 1.5) + 1
    return linear(function(x) * up, named["weight"], bias)


# Bits


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_same_bits(form: Form, gate: str, dtype: torch.dtype, device: str) -> None:
    for shape in SHAPES:
        check_same(form, gate, form.inputs(shape, dtype, device))


@pytest.mark.parametrize("layout", ["transposed weight", "transposed x", "expanded dy"])
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


def test_large(form: Form, device: str) -> None:
    """Products of matrices that torch divides among threads and blocks."""
    for dtype in (torch.float32, torch.bfloat16):
        check_same(form, "normal", form.inputs((4, 130, 384), dtype, device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_autocast(form: Form, dtype: torch.dtype, compiled: bool) -> None:
    """Of a hidden layer in either dtype, beside parameters in float32."""
    if compiled:
        torch.compiler.reset()
        compile = {"fullgraph": True, "backend": "aot_eager"}
        form = form._replace(ours=torch.compile(form.ours, **compile))
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


def test_what_is_saved(form: Form) -> None:
    """Each tensor once, but for the bias of the linear layer."""
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


@pytest.mark.parametrize("form", FORMS)
def test_saved_bytes(form: str) -> None:
    form = FORMS[form]
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


def test_each_gradient_alone(form: Form) -> None:
    tensors = form.inputs((6, 32))
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    for place, gradient in enumerate(expected):
        alone = [t.detach().requires_grad_(i == place) for i, t in enumerate(tensors)]
        (ours,) = grad(form.ours("normal", *alone).sum(), alone[place])
        assert bits.same(ours, gradient)


def compiled_graphs(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[list[Tensor]]:
    """The results of the forward graph: all but the first are kept for backward."""
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


def test_compiler_keeps_no_result(form: Form) -> None:
    """The compiler does not find that forward has computed the hidden tensor already."""
    tensors = form.inputs((64, 32))
    kept = compiled_graphs(lambda *t: form.ours("normal", *t), tensors)
    assert hidden_tensors(kept) == sum(name in ("x", "up") for name in form.tensors)
    kept = compiled_graphs(lambda *t: form.separate("normal", *t), tensors)
    assert hidden_tensors(kept) == 1 + sum(name in ("x", "up") for name in form.tensors)


@pytest.mark.parametrize("form, inputs, kept", [("gate", 1, (2, 1)), ("glu", 2, (3, 1))])
def test_compilers_own_budget(form: str, inputs: int, kept: tuple[int, int]) -> None:
    """docs/memory.md: where all is compiled, torch recomputes the separate operators if it is told
    to halve its memory."""
    tensors = FORMS[form].inputs((64, 32))
    before = [normal(64, 8), *[normal(32, 8).requires_grad_() for _ in range(inputs)]]

    def layer(input: Tensor, *tensors: Tensor) -> Tensor:
        hidden = [linear(input, weight) for weight in tensors[:inputs]]
        return FORMS[form].separate("normal", *hidden, *tensors[inputs:])

    tensors = [*before, *tensors[inputs:]]
    found = []
    for budget in (1.0, 0.5):
        with functorch_config.patch(activation_memory_budget=budget):
            found.append(hidden_tensors(compiled_graphs(layer, tensors)))
    assert tuple(found) == kept


# Modes


@few_gates
def test_gradients(form: Form, gate: str) -> None:
    """Of both orders, and in forward mode, beside finite differences."""
    tensors = form.inputs((2, 3, 4))

    def function(*tensors: Tensor) -> Tensor:
        return form.ours(gate, *tensors)

    torch.autograd.gradcheck(function, tensors, check_forward_ad=True, check_batched_grad=True)
    torch.autograd.gradgradcheck(function, tensors)


def test_values(form: Form, gate: str) -> None:
    tensors = form.inputs((3, 5, 32))
    torch.testing.assert_close(
        form.ours(gate, *tensors), of_reference(form, gate, *tensors), rtol=1e-12, atol=1e-12
    )


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


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(form: Form, reentrant: bool) -> None:
    tensors = form.inputs((5, 32))
    y = checkpoint(form.ours, "normal", *tensors, use_reentrant=reentrant)
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    y.sum().backward()
    assert all(bits.same(t.grad, e) for t, e in zip(tensors, expected, strict=True))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
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


def test_compiled_autograd(form: Form) -> None:
    tensors = form.inputs((5, 32))
    expected = grad(form.separate("normal", *tensors).sum(), tensors)
    y = form.ours("normal", *tensors)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        y.sum().backward()
    assert all(bits.same(t.grad, e) for t, e in zip(tensors, expected, strict=True))


@pytest.mark.parametrize("strict", [False, True])
def test_export(form: Form, strict: bool) -> None:
    class Layer(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return form.ours("normal", *tensors)

    tensors = tuple(t.detach() for t in form.inputs((5, 32)))
    exported = torch.export.export(Layer(), tensors, strict=strict).module()
    assert bits.same(exported(*tensors), form.separate("normal", *tensors))


X, UP, WEIGHT, BIAS, DY = (5, 32), (5, 32), (24, 32), (24,), (5, 24)


@pytest.mark.parametrize(
    "op, shapes, options",
    [
        ("gate_linear", (X, WEIGHT, BIAS), {"gate": "normal"}),
        ("glu_linear", (X, UP, WEIGHT, BIAS), {"gate": "normal"}),
        ("glu_linear", ((5, 64), None, WEIGHT), {"gate": "normal", **LIMITED}),
        ("gate_linear_backward_weight", (DY, X, (32,), "normal"), {}),
        ("gate_linear_backward_weight", (DY, X, None, "normal", True), {}),
        ("glu_linear_backward_weight", (DY, X, UP, "normal"), {}),
        ("glu_linear_backward_weight", (DY, (5, 64), None, "normal", 1.5, 1.0, True), {}),
    ],
    ids=str,
)
def test_opcheck(op: str, shapes: tuple, options: dict) -> None:
    arguments = [
        normal(*s, dtype=torch.float32).requires_grad_() if isinstance(s, tuple) else s
        for s in shapes
    ]
    opcheck(getattr(ops, op).default, tuple(arguments), options)


def test_inference_mode(form: Form) -> None:
    tensors = form.inputs((5, 32))
    with torch.inference_mode():
        y = form.ours("normal", *tensors)
    assert y.is_inference()
    assert bits.same(y.clone(), form.separate("normal", *tensors).detach())


def test_jagged() -> None:
    """As the separate functions: torch has the gradients."""
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


# Modules


def state(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in module.state_dict().items()}


def of_mlp(mlp: nn.MLP, x: Tensor) -> Tensor:
    """In plain PyTorch."""
    function = getattr(reference, mlp.gate)
    hidden = linear(x, mlp.up.weight, mlp.up.bias)
    if mlp.glu:
        first, second = hidden.chunk(2, -1)
        hidden = function(first) * second
    else:
        hidden = function(hidden)
    return linear(hidden, mlp.down.weight, mlp.down.bias)


each_kind_of_mlp = pytest.mark.parametrize("glu", [False, True])


@each_kind_of_mlp
@pytest.mark.parametrize("bias", [False, True])
def test_mlp(glu: bool, bias: bool, gate: str) -> None:
    mlp = nn.MLP(8, 12, gate=gate, glu=glu, bias=bias, dtype=torch.float64)
    hidden = 24 if glu else 12
    shapes = {"up.weight": (hidden, 8), "down.weight": (8, 12)}
    assert state(mlp) == shapes | ({"up.bias": (hidden,), "down.bias": (8,)} if bias else {})
    x = normal(5, 8).requires_grad_()
    wanted = [x, *mlp.parameters()]
    y, expected, dy = mlp(x), of_mlp(mlp, x), normal(5, 8)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad(y, wanted, dy), grad(expected, wanted, dy))


@each_kind_of_mlp
def test_saved_bytes_of_mlp(glu: bool) -> None:
    """The hidden layer once. A hook on `down` reads the gate's result, which is saved too."""
    mlp = nn.MLP(8, 32, glu=glu)
    x, hidden = torch.randn(512, 8), 512 * 32 * 4
    totals = []
    for _ in range(2):
        with SavedBytes() as saved:
            keep = mlp(x)
        totals.append(saved.total)
        del keep
        mlp.down.register_forward_hook(lambda *_: None)
    kept = 2 * hidden if glu else hidden
    others = x.nbytes + mlp.down.weight.nbytes + (0 if glu else mlp.up.bias.nbytes)
    assert totals == [kept + others, kept + hidden + others]


class Doubled(torch.nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class OnlyTorch(Tensor):
    """A weight that has torch's functions and no other."""

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if "gelu_kernels" in str(function):
            return NotImplemented
        return super().__torch_function__(function, types, args, kwargs or {})


def double_by_subclass(mlp: nn.MLP, name: str) -> None:
    layer = getattr(mlp, name)
    layer.__class__ = Doubled


def double_by_hook(mlp: nn.MLP, name: str) -> None:
    getattr(mlp, name).register_forward_hook(lambda module, inputs, y: 2 * y)


def double_by_pre_hook(mlp: nn.MLP, name: str) -> None:
    getattr(mlp, name).register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))


def double_by_patch(mlp: nn.MLP, name: str) -> None:
    layer = getattr(mlp, name)
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


def double_by_parametrization(mlp: nn.MLP, name: str) -> None:
    class Double(torch.nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    torch.nn.utils.parametrize.register_parametrization(getattr(mlp, name), "weight", Double())


def double_by_replacement(mlp: nn.MLP, name: str) -> None:
    setattr(mlp, name, torch.nn.Sequential(getattr(mlp, name), Times(2)))


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:
        return self.factor * input


@each_kind_of_mlp
@pytest.mark.parametrize("name", ["up", "down"])
@pytest.mark.parametrize(
    "change",
    [
        double_by_subclass,
        double_by_hook,
        double_by_pre_hook,
        double_by_patch,
        double_by_parametrization,
        double_by_replacement,
    ],
)
def test_mlp_calls_a_layer_that_is_not_plain(
    change: Callable[[nn.MLP, str], None], name: str, glu: bool
) -> None:
    mlp = nn.MLP(8, 12, glu=glu, bias=False, dtype=torch.float64)
    doubled = copy.deepcopy(mlp)
    getattr(doubled, name).weight.data.mul_(2)
    x = normal(5, 8).requires_grad_()
    change(mlp, name)
    y, expected = mlp(x), of_mlp(doubled, x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad(y.sum(), x), grad(expected.sum(), x))


@each_kind_of_mlp
def test_hooks_see_the_layers_of_mlp(glu: bool) -> None:
    """Each with its bias: hooks of the layers, and of every module."""
    mlp = nn.MLP(8, 12, glu=glu, dtype=torch.float64)
    x, seen = normal(5, 8), {}

    def hook(module: torch.nn.Module, inputs: tuple[Tensor], y: Tensor) -> None:
        seen[module] = inputs[0], y

    def check() -> None:
        for layer in (mlp.up, mlp.down):
            into, y = seen[layer]
            torch.testing.assert_close(y, linear(into, layer.weight, layer.bias))
        torch.testing.assert_close(seen[mlp.down][1], of_mlp(mlp, x))
        seen.clear()

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    mlp(x)
    handle.remove()
    check()
    handles = [layer.register_forward_hook(hook) for layer in (mlp.up, mlp.down)]
    mlp(x)
    check()
    for handle in handles:
        handle.remove()
    mlp(x)
    assert not seen
    gradients = []
    mlp.down.register_full_backward_hook(lambda module, inputs, _: gradients.append(inputs))
    mlp(x.requires_grad_()).sum().backward()
    assert gradients[0][0].shape == (5, 12)


@each_kind_of_mlp
def test_patched_linear(glu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    mlp = nn.MLP(8, 12, glu=glu, bias=False, dtype=torch.float64)
    x = normal(5, 8)
    expected = 2 * of_mlp(mlp, x)
    mlp.up.weight.data.div_(2)
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: 2 * forward(self, x))
    torch.testing.assert_close(mlp(x), expected)


@each_kind_of_mlp
def test_symbolic_trace_of_mlp_calls_its_layers(glu: bool) -> None:
    """They may be adapted when the graph runs."""
    graph = torch.fx.symbolic_trace(nn.MLP(8, 12, glu=glu, dtype=torch.float64))
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert called == ["up", "down"]
    mlp = nn.MLP(8, 12, glu=glu, dtype=torch.float64)
    mlp.load_state_dict(graph.state_dict())
    x = normal(5, 8)
    torch.testing.assert_close(graph(x), of_mlp(mlp, x))


def test_mlp_loads_its_states_of_version_0_2() -> None:
    """Also as part of a model. `down` held the bias of the hidden layer."""
    model = torch.nn.Sequential(nn.MLP(8, 12))
    expected = {name: torch.randn_like(t) for name, t in model.state_dict().items()}
    old = {name.replace("up.bias", "down.gate_bias"): t for name, t in expected.items()}
    model.load_state_dict(old)
    assert "0.down.gate_bias" in old
    for name, t in model.state_dict().items():
        assert torch.equal(t, expected[name])


def test_parameters_that_are_no_plain_tensors(form: Form) -> None:
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


LAYERS = [nn.LinearGELU, nn.GateLinear, partial(nn.GateLinear, gate_bias=True), nn.GLULinear]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [False, True])
def test_state_of_linear(kind: Callable[..., torch.nn.Module], bias: bool) -> None:
    """Names, shapes and initialisation; but tools do not take the layer for an nn.Linear."""
    layer = kind(3, 4, bias, "meta", torch.float16)
    assert not isinstance(layer, torch.nn.Linear)
    assert all(p.is_meta and p.dtype is torch.float16 for p in layer.parameters())
    torch.manual_seed(0)
    layer = kind(3, 4, bias)
    torch.manual_seed(0)
    other = torch.nn.Linear(3, 4, bias)
    assert repr(layer).split("(")[1].startswith(repr(other).split("(")[1].rstrip(")"))
    assert layer.in_features == 3 and layer.out_features == 4
    found = layer.state_dict()
    gate_bias = found.pop("gate_bias", torch.zeros(3))
    assert found.keys() == other.state_dict().keys()
    assert all(torch.equal(t, other.state_dict()[name]) for name, t in found.items())
    assert torch.equal(gate_bias, torch.zeros(3))


@pytest.mark.parametrize("kind", [*LAYERS, nn.MLP])
def test_initialised_after_the_meta_device(kind: Callable[..., torch.nn.Module]) -> None:
    """By the recipe of FSDP2."""
    with torch.device("meta"):
        model = kind(3, 4)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    torch.manual_seed(0)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    torch.manual_seed(0)
    expected = kind(3, 4).state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in model.state_dict().items())


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
    return [
        pytest.param(op, *case, id=f"{op}, {case[1]}")
        for op, cases in {
            "gate_linear": of_gate,
            "glu_linear": of_glu,
            "gate_linear_backward_weight": of_gates_weight,
            "glu_linear_backward_weight": of_glus_weight,
        }.items()
        for case in cases
    ]


@pytest.mark.parametrize("op, error, message, arguments, options", bad_inputs())
def test_bad_input(
    op: str, error: type[Exception], message: str, arguments: tuple, options: dict
) -> None:
    with pytest.raises(error, match=f"gelu_kernels::{op}: {message}"):
        getattr(ops, op)(*arguments, **options)


def test_autocast_takes_no_float64_weight() -> None:
    """As torch's own linear layer."""
    x, weight = torch.zeros(5, 32), torch.zeros(24, 32, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match="weight must have"):
        functional.gate_linear(x, weight)
