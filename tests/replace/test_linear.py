"""replace_activations with fuse_bias= and recompute=: linear layers before and after a gate."""

import copy
import pickle

import pytest
import torch
from torch.nn import GELU, Dropout, Identity, Linear, Sequential

from gelu_kernels import nn, replace_activations
from tests import bits
from tests.cases import each
from tests.replace.replacements import (
    Operators,
    SavedBytes,
    changes,
    compute,
    error,
    operators,
    reasons,
    tree,
)
from tests.replace.test_gated import Parts


class Mlp(Parts):
    def __init__(self, activation=None):
        super().__init__(GELU() if activation is None else activation)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class MlpByName(Mlp):
    def forward(self, x):
        x = self.fc1(x)
        x = self.act(x)
        x = self.fc2(x)
        return x


class GatedMlp(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x)) * self.up(x)
        return self.fc2(h)


def mlp_of_modules():
    return Sequential(Linear(6, 8), GELU("tanh"), Linear(8, 6))


# By model, the operators with fuse_bias and with recompute
LINEAR = {
    Mlp: ("bias_gelu(fc1, act)", "gate_linear(act, fc2)"),
    MlpByName: ("bias_gelu(fc1, act)", "gate_linear(act, fc2)"),
    mlp_of_modules: ("bias_gelu(0, 1)", "gate_linear(1, 2)"),
    GatedMlp: ("glu(act)", "glu_linear(act, fc2)"),
}
FUSED, RECOMPUTED = {"fuse_bias": True}, {"recompute": True}
BOTH = FUSED | RECOMPUTED


@each(make=LINEAR, dtype=[torch.float32, torch.bfloat16])
def test_recomputing_has_the_same_bits_for_less_memory(make, dtype):
    model = make().to(dtype)
    x = torch.randn(5, 6, dtype=dtype)
    results, kept = [], []
    for recompute in (False, True):
        with replace_activations(model, recompute=recompute):
            results.append(compute(model, x))
            with SavedBytes() as saved:
                model(x)
            kept.append(saved.total)
    assert all(map(bits.same, *results))
    assert kept[0] - kept[1] == 5 * 8 * dtype.itemsize


@each(make=LINEAR)
def test_linear_layers_stay(make):
    model = make().double()
    before, state = tree(model), model.state_dict()
    x = torch.randn(5, 6, dtype=torch.float64)
    expected = compute(model, x)
    fused, recomputed = LINEAR[make]
    for options, operator in ((FUSED, fused), (RECOMPUTED, recomputed), (BOTH, recomputed)):
        with replace_activations(model, **options) as replacement:
            assert operators(replacement) == {"forward": operator}
            assert all(new.startswith("gate(") for _, new in changes(replacement).values())
            assert model.state_dict().keys() == state.keys()
            after = tree(model)
            assert all(after[n] == was for n, was in before.items() if was[0] is Linear)
            assert error(compute(model, x), expected) < 1e-12
            for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                assert type(copied) is type(model)
                assert error(compute(copied, x), expected) < 1e-12
        assert tree(model) == before


def test_conv1d():
    conv1d = pytest.importorskip("transformers.pytorch_utils", reason="needs transformers").Conv1D
    model = Sequential(Linear(6, 8), GELU(), conv1d(6, 8)).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    expected = compute(model, x)
    assert operators(replace_activations(model, recompute=True)) == {"forward": "gate_linear(1, 2)"}
    assert error(compute(model, x), expected) < 1e-12


@each(dtype=[torch.float32, torch.bfloat16])
def test_fusing_a_bias_saves_no_more_memory(dtype):
    x = torch.randn(64, 6, dtype=dtype, requires_grad=True)
    saved = {}
    for fuse_bias in (None, False, True):
        model = Mlp().to(dtype)
        if fuse_bias is not None:
            replace_activations(model, fuse_bias=fuse_bias)
        with SavedBytes() as hooks:
            model(x)
        saved[fuse_bias] = hooks.total
    bias = 8 * dtype.itemsize  # a parameter, which exists anyway
    assert saved[False] == saved[None] and saved[True] <= saved[None] + bias


@each(options=[{}, FUSED, RECOMPUTED])
def test_compiles_once(options):
    """Layers of one class share their code, and guards hold from call to call."""
    layers = [make() for make in (GatedMlp, Mlp, mlp_of_modules) for _ in range(2)]
    for model in layers:
        replace_activations(model, **options)
    torch.compiler.reset()
    graphs = []
    compiled = torch.compile(
        lambda layer, x: layer(x), backend=lambda graph, _: graphs.append(1) or graph
    )
    for _ in range(3):
        for layer in layers:
            compiled(layer, torch.randn(3, 6))
    assert len(graphs) <= len(layers)


# Layers that are not fused


class SubclassedLinear(Linear):
    pass


def parametrised(model):
    torch.nn.utils.parametrizations.weight_norm(model.fc1)
    torch.nn.utils.parametrizations.weight_norm(model.fc2)


def hooked(register):
    def change(model):
        for linear in (model.fc1, model.fc2):
            getattr(linear, register)(lambda *arguments: None)

    return change


def subclassed(model):
    model.fc1, model.fc2 = SubclassedLinear(6, 8), SubclassedLinear(8, 6)


def dropped(model):
    model.act = Sequential(Dropout(0.0), GELU(), Dropout(0.0))


def without_bias(model):
    model.fc1, model.fc2 = Linear(6, 8, bias=False), Identity()


NOT_LINEAR = {
    "no bias": without_bias,
    "parametrised": parametrised,
    "subclass": subclassed,
    "hook": hooked("register_forward_hook"),
    "pre-hook": hooked("register_forward_pre_hook"),
    "backward hook": hooked("register_full_backward_hook"),
    "dropout": dropped,
}


@each(case=NOT_LINEAR)
def test_not_linear(case):
    model = Mlp()
    NOT_LINEAR[case](model)
    x = torch.randn(2, 4, 6)
    expected = model(x)
    replacement = replace_activations(model, **BOTH)
    assert [*changes(replacement).values()] == [(GELU, "gate(normal)")]
    assert not operators(replacement)
    name = "act.1" if case == "dropout" else "act"
    assert replacement.not_fused.keys() == replacement.not_recomputed.keys() == {name}
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_not_linear_in_a_sequence():
    cases = [
        ((GELU(), torch.nn.LayerNorm(6)), "no Linear is seen to come before it", "1 after it"),
        ((torch.nn.LayerNorm(6), GELU()), "0 before it is no plain", "no Linear is seen to come"),
        ((SubclassedLinear(6, 6), GELU(), SubclassedLinear(6, 6)), "0 before it", "2 after it"),
    ]
    for layers, before, after in cases:
        replacement = replace_activations(Sequential(*layers), **BOTH)
        (not_fused,), (not_recomputed,) = (
            replacement.not_fused.values(),
            replacement.not_recomputed.values(),
        )
        assert before in not_fused and after in not_recomputed, layers
        assert not operators(replacement), layers


def test_a_linear_layer_in_two_places():
    linear = Linear(6, 6)
    model = Sequential(linear, GELU(), linear).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = compute(model, x)
    for options in (FUSED, RECOMPUTED):
        with replace_activations(model, **options) as replacement:
            assert operators(replacement)
            assert error(compute(model, x), expected) < 1e-12


@each(shape=[(1,), (4, 8)])
def test_biases_of_other_shapes(shape):
    model, x = Mlp(), torch.randn(4, 6)
    model.fc1.bias = torch.nn.Parameter(torch.randn(shape))
    expected = model(x)
    replace_activations(model, fuse_bias=True)
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_one_call_after_another():
    model = Mlp()
    first = replace_activations(model)
    second = replace_activations(model, fuse_bias=True)
    third = replace_activations(model, recompute=True)
    assert operators(second) == {"forward": "bias_gelu(fc1, act)"}
    assert operators(third) == {"forward": "gate_linear(act, fc2)"}
    assert not replace_activations(model, **BOTH).changed
    with pytest.raises(RuntimeError, match=r"replace_activations: restore: __class__ of a Mlp no"):
        second.restore()
    third.restore()
    second.restore()
    first.restore()
    assert type(model) is Mlp and type(model.act) is GELU


@each(cls=[Mlp, GatedMlp])
def test_an_activation_that_saves_a_code(cls):
    """A code of its derivative, that is: no option drops it."""
    model = cls(nn.GELU(save="8bit"))
    replacement = replace_activations(model, **BOTH)
    assert operators(replacement) == {"forward": "bias_gelu(fc1, act)"}
    assert model.act.save == "8bit"
    with Operators() as called:
        model(torch.randn(4, 6))
    assert any("coded" in name for name in called.names)
    assert not reasons(replacement).get("act", "").startswith("left alone")
