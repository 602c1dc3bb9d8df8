"""replace_activations: the activations it replaces and leaves alone, what it prints, and what it
puts back. What it fuses is in test_replace_fused.py, and models in test_replace_models.py."""

import copy
import functools
import io
import pickle
import re
import subprocess
import sys
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import Linear, Module, Sequential

from gelu_kernels import replace_activations, replace_gelu
from tests.replace.replacements import Operators, changes, error, operators, reasons, tree

GELU = torch.nn.GELU
SiLU = torch.nn.SiLU


class Mlp(Module):
    def __init__(self, activation=None, bias=True):
        super().__init__()
        self.fc1 = Linear(6, 8, bias)
        self.act = GELU() if activation is None else activation
        self.fc2 = Linear(8, 6)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def compute(model, x):
    """Output and gradients, of x first."""
    x = x.clone().requires_grad_()
    y = model(x)
    gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    return [y.detach(), *gradients]


# Modules that are replaced


@pytest.mark.parametrize("make", [GELU, partial(GELU, "tanh"), SiLU], ids=["none", "tanh", "silu"])
@pytest.mark.parametrize("fuse_bias", [False, True])
def test_values_and_gradients(make, fuse_bias, device):
    model = Sequential(Linear(6, 8), make(), Mlp(make())).to(device)
    model[2].fc1 = Linear(8, 8, device=device)
    model = model.double()
    x = 3 * torch.randn(5, 7, 6, dtype=torch.float64, device=device)
    expected = compute(model, x)
    replace_activations(model, fuse_bias=fuse_bias)
    with Operators() as called:
        model(x)
    assert not called.names & {"aten::gelu", "aten::silu"}
    # Moderate inputs, on which F.gelu in float64 is right to 1e-13 or so of the largest.
    assert error(compute(model, x), expected) < 1e-12


def test_modules_wherever_they_are():
    model = torch.nn.ModuleDict(
        {
            "list": torch.nn.ModuleList([GELU(), torch.nn.ReLU(), GELU("tanh")]),
            "last": GELU("tanh"),
            "mlp": Mlp().eval(),
        }
    )
    replacement = replace_activations(model)
    assert changes(replacement) == {
        "list.0": (GELU, "gate(normal)"),
        "list.2": (GELU, "gate(normal_tanh)"),
        "last": (GELU, "gate(normal_tanh)"),
        "mlp.act": (GELU, "gate(normal)"),
    }
    assert not replacement.left_alone
    assert list(model) == ["list", "last", "mlp"]


def test_a_shared_instance_counts_once():
    shared = GELU()
    block = Mlp(shared)
    model = Sequential(block, shared, block)
    replacement = replace_activations(model)
    assert changes(replacement).keys() == {"1"}
    replacement.restore()
    assert model[0].act is model[1] is shared and type(shared) is GELU


def test_what_an_activation_says_at_the_time():
    model = Sequential(GELU())
    replace_activations(model)
    x = torch.linspace(-3, 3, 64, dtype=torch.float64)
    model[0].approximate = "tanh"
    assert torch.allclose(model(x), F.gelu(x, approximate="tanh"), rtol=0, atol=1e-14)
    silu = SiLU()
    replace_activations(silu)
    silu.inplace = True
    assert silu(x) is x


@pytest.mark.parametrize("activation", [GELU("tanh"), SiLU()], ids=str)
def test_an_activation_itself(activation):
    x = torch.linspace(-3, 3, 64, dtype=torch.float64)
    expected = activation(x)
    with replace_activations(activation) as replacement:
        assert changes(replacement).keys() == {""}
        with Operators() as called:
            y = activation(x)
        assert torch.allclose(y, expected, rtol=0, atol=1e-14)
    assert called.names == {"gelu_kernels::gate_forward"}


@pytest.mark.parametrize("old, approximate", [
    (F.gelu, "none"), (partial(F.gelu, approximate="tanh"), "tanh"), (F.silu, None),
    (partial(F.silu, inplace=False), None),
])  # fmt: skip
@pytest.mark.parametrize("fuse_bias", [False, True])
def test_functions_held_as_attributes(old, approximate, fuse_bias):
    fuse_bias = fuse_bias and approximate is not None
    model = Mlp(old).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = compute(model, x)
    replacement = replace_activations(model, fuse_bias=fuse_bias)
    operator = "bias_gelu(fc1, act)" if fuse_bias else "gate(act)"
    assert operators(replacement) == {"forward": operator}
    assert model.act is old and not reasons(replacement)
    assert error(compute(model, x), expected) < 1e-12
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


def test_activation_classes_are_not_functions():
    model = Mlp()
    model.act_layer = partial(GELU, approximate="tanh")
    model.act_class = GELU
    model.other_class = SiLU
    assert changes(replace_activations(model)).keys() == {"act"}


# PyTorch's encoder layer, whose inference path does not call the activation


def encoder(activation):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2).double().eval()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.parametrize("fuse_bias", [False, True])
@pytest.mark.parametrize("activation", ["gelu", F.gelu, GELU()], ids=["name", "function", "module"])
def test_transformer_encoder(activation, fuse_bias):
    model = encoder(activation)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [2]])
    before = tree(model)
    with torch.no_grad(), Operators() as unpatched:
        expected = model(x, src_key_padding_mask=padding)[~padding]
    replacement = replace_activations(model, fuse_bias=fuse_bias)
    with torch.no_grad(), Operators() as patched:
        y = model(x, src_key_padding_mask=padding)[~padding]
    assert "aten::_transformer_encoder_layer_fwd" in unpatched.names - patched.names
    assert not any("gelu" in name for name in patched.names if name.startswith("aten"))
    assert any(name.startswith("gelu_kernels") for name in patched.names)
    assert error([y], [expected]) < 1e-12
    assert model.layers[1].activation_relu_or_gelu == 0
    assert {"use_nested_tensor", "layers.1.activation_relu_or_gelu"} < changes(replacement).keys()
    replacement.restore()
    assert tree(model) == before


def test_relu_encoder_is_untouched():
    model = encoder("relu")
    assert str(replace_activations(model)) == "replace_activations: nothing to replace"
    assert model.use_nested_tensor and model.layers[0].activation_relu_or_gelu == 1


# Modules that are left alone


class Unknown(Module):
    """Of a name that says what it computes."""

    def __init__(self):
        super().__init__()
        self.compute = torch.relu

    def forward(self, x):
        return self.compute(x)


class ClippedGELU(Unknown):
    pass


class OtherSiLU(Unknown):
    pass


def fast_gelu(x):
    return x


def gelu_of(x):
    return F.gelu(x)


class CallsTorch(Module):
    def forward(self, x):
        return F.gelu(x)


class CallsHelper(Module):
    def forward(self, x):
        return gelu_of(x)


class InComprehension(Module):
    def forward(self, x):
        return sum(F.silu(part) for part in x.chunk(2, -1))


class Gated(Mlp):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.fc1(x)


class InPlace(Module):
    def forward(self, x):
        return F.silu(x, inplace=True)


class Static(Module):
    @staticmethod
    def activate(x):
        return F.gelu(x)

    def forward(self, x):
        return self.activate(x)


class ByItself(Module):
    """Whatever its attributes are."""

    def __getattr__(self, name):
        return super().__getattr__(name)

    def forward(self, x):
        return F.gelu(x)


class FromTable(Module):
    def forward(self, x):
        return ACT2FN["gelu"](x)


ACT2FN = {"gelu": torch.relu}


class ByErf(Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


class BySigmoid(Module):
    def forward(self, x):
        gate, up = x.chunk(2, -1)
        return gate * torch.sigmoid(1.5 * gate) * up


class Unwrapped(Module):
    def decorated(function):
        return lambda *arguments: function(*arguments)

    @decorated
    def forward(self, x):
        return F.gelu(x)


class Cached(Module):
    @functools.lru_cache  # noqa: B019
    def forward(self, x):
        return F.gelu(x)


class CachedProperty(Module):
    @functools.cached_property
    def activated(self):
        return F.gelu(torch.ones(3))


class BySuper(CallsTorch):
    def forward(self, x):
        return super().forward(x)


class HeldByClass(Module):
    act = staticmethod(F.gelu)

    def forward(self, x):
        return self.act(x)


class ByGetattr(Module):
    def forward(self, x):
        return getattr(F, "gelu")(x)  # noqa: B009


class GlobalModule(Module):
    def forward(self, x):
        return ACTIVATION(x)


ACTIVATION = torch.nn.GELU()


class GatesOnly(Module):
    """No activation: one half decides on the other."""

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return value * torch.sigmoid(gate) + torch.erf(gate)


def held_in(values):
    model = Mlp(torch.nn.ReLU())
    model.acts = values
    return model


def read_nowhere():
    namespace = {"Module": Module, "F": F}
    exec("class Unread(Module):\n    def forward(self, x): return F.gelu(x)", namespace)
    return namespace["Unread"]()


def with_own_forward(module):
    module.forward = module.forward
    return module


LEFT_ALONE = {
    "other class": (lambda: Sequential(ClippedGELU()), "0", "ClippedGELU is not known"),
    "other class of SiLU": (lambda: Sequential(OtherSiLU()), "0", "OtherSiLU is not known"),
    "other function": (lambda: Mlp(fast_gelu), "act", "fast_gelu is not known"),
    "partial": (lambda: Mlp(partial(fast_gelu)), "act", "fast_gelu.* is not known"),
    "lambda": (lambda: Mlp(lambda x: F.gelu(x)), "act", "lambda.* is not known"),
    "in place": (lambda: Mlp(SiLU(inplace=True)), "act", "overwrites its input"),
    "in place, function": (
        lambda: Mlp(partial(F.silu, inplace=True)), "act", "overwrites its input",
    ),
    "own forward": (lambda: Mlp(with_own_forward(GELU())), "act", "its forward was replaced"),
    "compiled": (lambda: Mlp(torch.compile(GELU())), "act", "it is compiled"),
    "helper": (CallsHelper, "forward", "it calls gelu_of itself"),
    "comprehension": (InComprehension, "forward", "it calls silu itself"),
    "in place, in forward": (InPlace, "forward", "it calls silu itself"),
    "static": (Static, "activate", "it calls gelu itself, and activate is no plain method"),
    "attributes": (ByItself, "forward", "it calls gelu itself, and forward is no plain method"),
    "no source": (read_nowhere, "forward", "no source is found that is the code that runs"),
    "list": (lambda: held_in([GELU()]), "acts", "it is kept in a list"),
    "dict": (lambda: held_in({"gelu": F.gelu}), "acts", "it is kept in a dict"),
    "table": (FromTable, "forward", "it calls ACT2FN itself"),
    "unwrapped": (Unwrapped, "forward", "it calls gelu itself, and forward is no plain method"),
    "cached": (Cached, "forward", "it calls gelu itself, and forward is no plain method"),
    "cached property": (CachedProperty, "activated", "it calls gelu itself"),
    "super": (BySuper, "CallsTorch.forward", "it calls gelu itself"),
    "held by class": (HeldByClass, "act", "its class holds it"),
    "getattr": (ByGetattr, "forward", "it calls gelu itself"),
    "global module": (GlobalModule, "forward", "it calls ACTIVATION itself"),
    "graph": (lambda: torch.fx.symbolic_trace(CallsTorch()), "forward", "it calls gelu itself"),
    "erf": (ByErf, "forward", "it computes a gate that is not known"),
    "sigmoid": (BySigmoid, "forward", "it computes a gate that is not known"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case, capsys):
    make, name, why = LEFT_ALONE[case]
    model = make()
    before = tree(model)
    replacement = replace_activations(model)
    assert not replacement.changed and list(reasons(replacement)) == [name]
    assert re.search(why, reasons(replacement)[name])
    assert why.split(".*")[-1] in capsys.readouterr().out
    assert tree(model) == before


def test_nothing_to_replace(capsys):
    model = Sequential(Linear(2, 2), torch.nn.ReLU(), GatesOnly(), torch.nn.Hardswish())
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and not replacement.left_alone
    assert capsys.readouterr().out == "replace_activations: nothing to replace\n"


@pytest.mark.parametrize("model", [F.gelu, GELU, [GELU()], None], ids=str)
def test_not_a_module(model):
    with pytest.raises(
        TypeError, match=r"replace_activations: model must be a torch\.nn\.Module, got \w"
    ):
        replace_activations(model)


def test_report(capsys):
    model = Sequential(Linear(2, 2), GELU("tanh"), ClippedGELU(), Mlp(F.gelu, bias=False))
    replacement = replace_activations(model, fuse_bias=True)
    assert capsys.readouterr().out == f"{replacement}\n"
    assert str(replacement).splitlines() == [
        "replace_activations: 3 changed, 1 left alone, 1 not fused",
        "  1: torch.nn.modules.activation.GELU('tanh') -> gate(normal_tanh)",
        "  forward: torch.nn.modules.container.Sequential.forward -> bias_gelu(0, 1)",
        f"  3.forward: {Mlp.__module__}.Mlp.forward -> gate(act)",
        f"  2: left alone: {ClippedGELU.__module__}.ClippedGELU is not known to be one of the "
        "gates",
        "  3.act: not fused: fc1 before it is no plain Linear with a bias",
    ]


def test_replace_gelu_leaves_all_else():
    model = Sequential(SiLU(), OtherSiLU(), InPlace(), Gated(SiLU()), Gated(GELU()))
    replacement = replace_gelu(model)
    assert str(replacement).splitlines() == [
        "replace_gelu: 1 changed, 0 left alone",
        "  4.act: torch.nn.modules.activation.GELU('none') -> gate(normal)",
    ]
    assert str(replace_gelu(SiLU())) == "replace_gelu: nothing to replace"
    with pytest.raises(TypeError, match=r"replace_gelu: model must be a torch\.nn\.Module"):
        replace_gelu(F.gelu)


# Functions that a method calls


class ClassOfGELU(GELU):
    pass


class Functions(Module):
    def forward(self, x):
        y = F.gelu(x) + torch.nn.functional.gelu(x, approximate="tanh")
        for _ in range(2):
            with torch.enable_grad():
                y = F.silu(y) if y.dim() else y
        return [y.sum(), self.arithmetic(y)]

    @torch.enable_grad()
    def arithmetic(self, x):
        return x * torch.sigmoid(1.702 * x) + x.sigmoid() * x


def test_functions_that_a_method_calls():
    model = Sequential(ClassOfGELU("tanh"), Functions()).double()
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)

    def results():
        y, z = model(x)
        return [y, z, *torch.autograd.grad(y + z.square().sum(), x)]

    with Operators() as before:
        expected = results()
    replacement = replace_activations(model)
    assert operators(replacement) == {
        "0.forward": "gate(gelu)",
        "1.forward": "gate(silu), gate(gelu), gate(gelu)",
        "1.arithmetic": "gate(swish), gate(swish)",
    }
    assert not reasons(replacement)
    with Operators() as after:
        assert error(results(), expected) < 1e-12
    assert {"aten::gelu", "aten::silu", "aten::sigmoid"} <= before.names
    assert not {"aten::gelu", "aten::silu", "aten::sigmoid"} & after.names


def test_a_function_that_is_patched_later(monkeypatch):
    model = Functions()
    replace_activations(model)
    x = torch.randn(4, 6)
    monkeypatch.setattr(F, "silu", torch.zeros_like)
    assert not any(part.any() for part in model(x))
    monkeypatch.undo()
    monkeypatch.setattr(torch, "sigmoid", torch.zeros_like)
    y = x * x.sigmoid()
    assert torch.allclose(model.arithmetic(x), y, atol=1e-6)


class AliasOfFunction(Module):
    def forward(self, x, scale=2.0):
        return my_activation(x) + scale


my_activation = F.gelu


def test_an_alias_and_other_defaults():
    model = AliasOfFunction()
    assert operators(replace_activations(model)) == {"forward": "gate(gelu)"}
    x = torch.randn(3)
    before = model(x)
    try:
        AliasOfFunction.forward.__defaults__ = (4.0,)
        assert torch.allclose(model(x), before + 2)
    finally:
        AliasOfFunction.forward.__defaults__ = (2.0,)


# Hooks of an activation


def test_hooks_go_with_an_activation():
    """Those that are there, and those that come before restore()."""
    seen = []
    model = Mlp()
    model.act.register_forward_hook(lambda module, arguments, output: seen.append("old"))
    replacement = replace_activations(model)
    handle = model.act.register_forward_hook(lambda module, arguments, output: seen.append("new"))
    model(torch.randn(2, 6))
    replacement.restore()
    model(torch.randn(2, 6))
    handle.remove()
    model(torch.randn(2, 6))
    assert seen == ["old", "new", "old", "new", "old"]


# Undoing, copying, compiling


@pytest.mark.parametrize("fuse_bias", [False, True])
def test_restore(fuse_bias):
    model = Sequential(Mlp(), Mlp(F.gelu), GELU("tanh"), Linear(6, 6), GELU())
    before, representation = tree(model), repr(model)
    with replace_activations(model, fuse_bias=fuse_bias) as replacement:
        assert tree(model) != before
    assert tree(model) == before and repr(model) == representation
    assert not replacement.changed
    replacement.restore()
    assert tree(model) == before


@pytest.mark.parametrize("fuse_bias", [False, True])
def test_copies(fuse_bias):
    model = Sequential(Mlp(), Mlp(F.gelu), GELU("tanh"))
    replacement = replace_activations(model, fuse_bias=fuse_bias)
    x = torch.randn(3, 6)
    expected = model(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]
    replacement.restore()
    for copied in copies:
        assert torch.equal(copied(x), expected)
        with Operators() as called:
            copied(x)
        assert "aten::gelu" not in called.names  # a copy stays as it is


@pytest.mark.parametrize("fuse_bias", [False, True])
def test_compile(fuse_bias):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return aot_eager(graph, inputs)

    model = Sequential(Mlp(), Mlp(F.gelu), GELU("tanh")).double()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = compute(compiled, x)
    for target in (model, compiled):  # either is the model
        replacement = replace_activations(target, fuse_bias=fuse_bias)
        graphs.clear()
        assert error(compute(compiled, x), expected) < 1e-12
        assert target is compiled or [code.count("_nn.gelu") for code in graphs] == [0]
        replacement.restore()


def test_optimizer_made_before():
    models = [Mlp().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    replace_activations(models[1], fuse_bias=True)
    x = torch.randn(9, 6, dtype=torch.float64)
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    a, b = ([*model.parameters()] for model in models)
    assert error(b, a) < 1e-12


def test_autocast():
    model = Mlp()
    x = torch.randn(9, 6)
    expected = model(x)
    replace_activations(model, fuse_bias=True)
    with torch.autocast("cpu", torch.bfloat16):
        y: Tensor = model(x)
    assert y.dtype == torch.bfloat16 and error([y.float()], [expected]) < 2**-6


def test_imports_neither_package():
    code = "import sys, gelu_kernels; print({'transformers', 'timm'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
