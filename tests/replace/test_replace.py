"""replace_activations: the activations and functions it replaces, and what restore() puts back."""

import copy
import io
import pickle
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import GELU, Linear, Module, Sequential, SiLU

from gelu_kernels import replace_activations
from tests.cases import each
from tests.new_process import python
from tests.replace.replacements import (
    Operators,
    changes,
    compute,
    error,
    operators,
    reasons,
    tree,
)
from tests.replace.test_linear import Mlp

# Modules that are replaced


@each(make=[GELU, partial(GELU, "tanh"), SiLU], fuse_bias=[False, True])
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


def test_attributes_are_read_at_each_call():
    model = Sequential(GELU())
    replace_activations(model)
    x = torch.linspace(-3, 3, 64, dtype=torch.float64)
    model[0].approximate = "tanh"
    assert torch.allclose(model(x), F.gelu(x, approximate="tanh"), rtol=0, atol=1e-14)
    silu = SiLU()
    replace_activations(silu)
    silu.inplace = True
    assert silu(x) is x


@each(activation=[GELU("tanh"), SiLU()])
def test_an_activation_itself(activation):
    x = torch.linspace(-3, 3, 64, dtype=torch.float64)
    expected = activation(x)
    with replace_activations(activation) as replacement:
        assert changes(replacement).keys() == {""}
        with Operators() as called:
            y = activation(x)
        assert torch.allclose(y, expected, rtol=0, atol=1e-14)
    assert called.names == {"gelu_kernels::gate_forward"}


GELU_FUNCTIONS = [F.gelu, partial(F.gelu, approximate="tanh")]
SILU_FUNCTIONS = [F.silu, partial(F.silu, inplace=False)]


@each(old=GELU_FUNCTIONS + SILU_FUNCTIONS, fuse_bias=[False, True])
def test_functions_held_as_attributes(old, fuse_bias):
    model = Mlp(old).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = compute(model, x)
    replacement = replace_activations(model, fuse_bias=fuse_bias)
    operator = "bias_gelu(fc1, act)" if fuse_bias and old in GELU_FUNCTIONS else "gate(act)"
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
@each(activation=["gelu", F.gelu, GELU()], fuse_bias=[False, True])
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
    assert patched.ours
    assert error([y], [expected]) < 1e-12
    assert model.layers[1].activation_relu_or_gelu == 0
    assert {"use_nested_tensor", "layers.1.activation_relu_or_gelu"} < changes(replacement).keys()
    replacement.restore()
    assert tree(model) == before


def test_relu_encoder_is_untouched():
    model = encoder("relu")
    assert str(replace_activations(model)) == "replace_activations: nothing to replace"
    assert model.use_nested_tensor and model.layers[0].activation_relu_or_gelu == 1


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


my_activation = F.gelu


class AliasOfFunction(Module):
    def forward(self, x, shift=2.0, *, more=0.0):
        return my_activation(x) + shift + more


def test_an_alias_and_other_defaults():
    model = AliasOfFunction()
    assert operators(replace_activations(model)) == {"forward": "gate(gelu)"}
    x = torch.randn(3)
    before = model(x)
    function = AliasOfFunction.forward
    try:
        function.__kwdefaults__["more"] = 1.0
        assert torch.allclose(model(x), before + 1)
        function.__kwdefaults__["more"] = 0.0
        function.__defaults__ = (4.0,)
        assert torch.allclose(model(x), before + 2)
    finally:
        function.__defaults__ = (2.0,)
        function.__kwdefaults__["more"] = 0.0


# Hooks of an activation


def test_hooks_go_with_an_activation():
    """The ones registered before the replacement, and before restore()."""
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


@each(fuse_bias=[False, True])
def test_restore(fuse_bias):
    model = Sequential(Mlp(), Mlp(F.gelu), GELU("tanh"), Linear(6, 6), GELU())
    before, representation = tree(model), repr(model)
    with replace_activations(model, fuse_bias=fuse_bias) as replacement:
        assert tree(model) != before
    assert tree(model) == before and repr(model) == representation
    assert not replacement.changed
    replacement.restore()
    assert tree(model) == before


@each(fuse_bias=[False, True])
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
        assert "aten::gelu" not in called.names  # restoring the model does not restore its copies


def test_compile():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return aot_eager(graph, inputs)

    model = Sequential(Mlp(), Mlp(F.gelu), GELU("tanh")).double()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = compute(compiled, x)
    for target in (model, compiled):  # both name the same model
        replacement = replace_activations(target, fuse_bias=True)
        graphs.clear()
        assert error(compute(compiled, x), expected) < 1e-12
        assert target is compiled or [code.count("_nn.gelu") for code in graphs] == [0]
        replacement.restore()


def test_imports_neither_package():
    code = "import sys, gelu_kernels; print({'transformers', 'timm'} & set(sys.modules))"
    assert python(code) == "set()\n"
