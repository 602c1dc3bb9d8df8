"""replace_activations: the patterns that one operator computes, and the ones that are left."""

import copy
import pickle
import sys
import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Dropout, Linear, Module, Sequential, SiLU

from gelu_kernels import nn, replace_activations
from tests import bits
from tests.replace.replacements import (
    Operators,
    SavedBytes,
    changes,
    error,
    operators,
    reasons,
    tree,
)


class Parts(Module):
    """A gate and an up projection, an activation, and the linear layer after them."""

    def __init__(self, activation=None, bias=True):
        super().__init__()
        self.fc1, self.up = Linear(6, 8, bias), Linear(6, 8)
        self.act = activation or SiLU()
        self.fc2 = Linear(8, 6)


def compute(model, x):
    """Output and gradients, of x first."""
    x = x.clone().requires_grad_()
    y = model(x)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(y.square().sum(), [x, *parameters], allow_unused=True)
    return [y.detach(), *(g for g in gradients if g is not None)]


# Gated linear units


class Gated(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)


class UpFirst(Parts):
    def forward(self, x):
        return self.up(x) * self.act(self.fc1(x))


class ByName(Parts):
    def forward(self, x):
        if x is None:
            return x
        h = self.act(self.fc1(x))
        up = self.up(x)
        return (h * up).clone()


class ByOneName(Parts):
    def forward(self, h):
        both = torch.cat([self.fc1(h), self.up(h)], -1)
        h, up = both.chunk(2, dim=-1)
        h = self.act(h)
        h = h * up
        for _ in range(2):
            h = h + 1
        return h


class Thrice(Parts):
    def forward(self, x):
        x = torch.cat([self.fc1(x), self.up(x)], -1)
        gate, up = x.chunk(2, dim=-1)
        y = self.act(gate) * up * 2
        return y + self.act(up) * self.act(gate)


class ByMethod(Parts):
    def forward(self, x):
        return self.product(self.fc1(x), self.up(x))

    def product(self, x, up):
        return self.act(x) * up


class ByFunction(Parts):
    def forward(self, x):
        return torch.mul(F.silu(self.fc1(x)), self.up(x))


class InLoop(Parts):
    def forward(self, x):
        y = 0
        for _ in range(2):
            with torch.enable_grad():
                y = y + self.act(self.fc1(x)) * self.up(x)
        return y


class EvenAndOdd(Parts):
    def forward(self, x):
        both = self.fc1(x)
        return self.act(both[..., ::2]) * both[..., 1::2]


class Decorated(Parts):
    @torch.enable_grad()
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)


class Inherited(Gated):
    def forward(self, x, scale=2):
        return scale * super().forward(x)


class Private(Parts):
    def __product(self, x, up):
        return self.act(x) * up

    def forward(self, x):
        return self.__product(self.fc1(x), self.up(x))


class BothGated(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.act(self.up(x))


class Arithmetic(Parts):
    def forward(self, x):
        h = self.fc1(x)
        return h * torch.sigmoid(h) * self.up(x)


GATED = {
    Gated: "forward", UpFirst: "forward", ByName: "forward", ByOneName: "forward",
    Thrice: "forward", ByMethod: "product", ByFunction: "forward", InLoop: "forward",
    EvenAndOdd: "forward", Decorated: "forward", Private: "_Private__product",
    Arithmetic: "forward", BothGated: "forward",
}  # fmt: skip


class LocalImport(Parts):
    """What it calls sigmoid is another function."""

    def forward(self, x):
        from torch import tanh as sigmoid

        h = self.fc1(x)
        return h * sigmoid(h) * self.up(x)


class IntoBuffer(Parts):
    def forward(self, x):
        h = self.fc1(x).detach()
        buffer = torch.empty_like(h)
        y = h * torch.sigmoid(h, out=buffer) * self.up(x)
        return y + buffer


class SigmoidFirst(Parts):
    def forward(self, x):
        h = self.fc1(x)
        s = torch.sigmoid(h)
        z = h
        return z * s * self.up(x)


class ByKeyword(Parts):
    def forward(self, x):
        h, limit = self.fc1(x), LIMIT
        h = torch.clamp(input=h, max=limit[0])
        return h * torch.sigmoid(input=h) * torch.sigmoid(h * limit[0]) + h * torch.sigmoid(
            h * NUMBERS
        )


LIMIT, NUMBERS = [0.5], torch.ones(8)


class Broadcast(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)[..., :1]


class Scaled(Parts):
    def forward(self, x):
        return 2.0 * self.act(self.fc1(x)) + self.up(x)


class Promoted(Parts):
    def forward(self, x):
        return self.act(self.fc1(x).float()) * self.up(x)


class OtherStrides(Parts):
    def forward(self, x):
        up = self.up(x).transpose(0, 1).contiguous().transpose(0, 1)
        return (up * self.act(self.fc1(x))).transpose(0, 1).view(-1)


PRODUCTS = [
    *GATED, LocalImport, IntoBuffer, SigmoidFirst, ByKeyword, Broadcast, Scaled, Promoted,
    OtherStrides,
]  # fmt: skip


def bound_of(cls):
    return 1e-6 if cls is Promoted else 1e-12


@pytest.mark.parametrize("cls", PRODUCTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "make", [SiLU, partial(GELU, "tanh"), lambda: F.silu], ids=["silu", "tanh", "function"]
)
def test_gated(cls, make, device):
    model = cls(make()).to(device).double()
    x = torch.randn(5, 7, 6, dtype=torch.float64, device=device)
    expected, before = compute(model, x), tree(model)
    replacement = replace_activations(model)
    if cls in GATED:
        assert operators(replacement)[GATED[cls]].startswith("glu(")
    assert error(compute(model, x), expected) < bound_of(cls)
    assert not replace_activations(model).changed
    replacement.restore()
    assert tree(model) == before


@pytest.mark.parametrize("cls", GATED, ids=lambda c: c.__name__)
def test_gated_is_one_operator(cls):
    model = cls().eval()
    replace_activations(model)
    with torch.no_grad(), Operators() as called:
        model(torch.randn(3, 6))
    ours = {name for name in called.names if name.startswith("gelu_kernels")}
    alone = {"gelu_kernels::gate_forward"} if cls in (Thrice, BothGated) else set()
    assert ours == {"gelu_kernels::glu_forward"} | alone
    assert not called.names & {"aten::silu", "aten::sigmoid"}


@pytest.mark.parametrize("cls", PRODUCTS, ids=lambda c: c.__name__)
def test_gated_compiles(cls):
    model = cls().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = compute(model, x)
    replace_activations(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, x), expected) < bound_of(cls)


@pytest.mark.parametrize("options", [{}, {"fuse_bias": True}, {"recompute": True}], ids=str)
def test_compiles_once(options):
    """Layers of one class share their code, and guards hold from call to call."""
    layers = [Gated(), Gated(), Mlp(GELU()), Mlp(GELU()), mlp_of_modules(), mlp_of_modules()]
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


@pytest.mark.parametrize("strict", [False, True])
def test_gated_exports(strict):
    model = UpFirst().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = model(x)
    replace_activations(model)
    program = torch.export.export(model, (x,), strict=strict)
    assert "glu" in str(program.graph)
    assert error([program.module()(x)], [expected]) < 1e-12


class Added(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        return self.fc2(h) + self.fc2(h * self.up(x))


class Read(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        return h * self.up(x) + h


class ReadLater(Parts):
    def forward(self, x):
        y = 0
        for i in range(2):
            y = y + (h if i else 0)  # noqa: F821  of the step before
            h = self.act(self.fc1(x))
            y = y + h * self.up(x)
        return y


class ReadAfterBreak(Parts):
    def forward(self, x):
        for i in range(3):
            h = self.act(self.fc1(x))
            y = h * self.up(x)
            if i:
                break
            h = x
        return y + h


class ReadAfterError(Parts):
    def forward(self, x):
        try:
            h = self.act(self.fc1(x))
            y = h * self.up(x)
            h = y.view(7, 7)
        except RuntimeError:
            return y + h
        return h


class ReadWithin(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        return h * self.up(x) + (lambda: h)()


class ReadByName(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        return h * self.up(x) + locals()["h"]


class Augmented(Parts):
    def forward(self, x):
        h = self.act(self.fc1(x))
        h *= self.up(x)
        return h


class Written(Parts):
    def forward(self, x):
        x = self.fc1(x)
        h = self.act(x)
        x.mul_(2)
        return h * x


class WrittenIndex(Parts):
    def forward(self, x):
        x = self.fc1(x)
        h = self.act(x)
        x[0] = 1
        return h * x


class WrittenAtOnce(Parts):
    def forward(self, x):
        x = self.fc1(x)
        return self.act(x) * x.add_(1)


class WrittenByChild(Parts):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.up = torch.nn.Hardsigmoid(inplace=True)

    def forward(self, x):
        x = self.fc1(x)
        return self.act(x) * self.up(x)


class Power(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) ** 2 * self.up(x)


class Passed(Parts):
    def forward(self, x):
        return torch.func.vmap(self.act)(self.fc1(x)) * self.up(x)


class Reassigned(Parts):
    def forward(self, x):
        self.act = torch.nn.Identity()
        return self.act(self.fc1(x)) * self.up(x)


class ClampedLater(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)).clamp(max=0.5) * self.up(x)


class Property(Parts):
    @property
    def scale(self):
        self.fc1.weight.data.mul_(1.5)
        return 2.0

    def forward(self, x):
        return self.act(self.fc1(x)) * (self.up(x) * self.scale)


NOT_GATED = {
    Added: "its result is used elsewhere", Read: "used elsewhere", ReadLater: "used elsewhere",
    ReadAfterBreak: "used elsewhere", ReadAfterError: "used elsewhere",
    ReadWithin: "", ReadByName: "", Augmented: "",
    Written: "something that may write stands in between", WrittenIndex: "may write",
    WrittenAtOnce: "may write", WrittenByChild: "may write", Power: "stands between",
    Passed: "", Reassigned: "", ClampedLater: "clamp stands between it and the product",
    Property: "may write",
}  # fmt: skip


@pytest.mark.parametrize("cls", NOT_GATED, ids=lambda c: c.__name__)
@pytest.mark.parametrize("recompute", [False, True])
def test_not_gated(cls, recompute):
    model = cls().double()
    plain = copy.deepcopy(model)
    x = torch.randn(4, 6, dtype=torch.float64)
    replacement = replace_activations(model, recompute=recompute)
    assert not operators(replacement)
    assert NOT_GATED[cls] in replacement.not_fused.get("act", "")
    with torch.no_grad():
        assert error([model(x)], [plain(x)]) < 1e-12


def test_gated_with_own_forward():
    model = Gated()
    model.forward = lambda x: model.act(x)
    replace_activations(model)
    x = torch.randn(4, 8)
    assert torch.allclose(model(x), F.silu(x))


def test_gated_keeps_hooks_and_training():
    model = Gated().eval()
    seen = []
    model.register_forward_hook(lambda module, arguments, output: seen.append(output))
    replacement = replace_activations(model)
    y = model(torch.randn(2, 6))
    assert seen[0] is y and not model.act.training
    model.train()
    replacement.restore()
    assert model.act.training


# Clamped units


class Clamped(Module):
    def __init__(self, alpha=1.702, limit=0.75):
        super().__init__()
        self.alpha, self.limit = alpha, limit

    def forward(self, both):
        gate, up = both[..., ::2], both[..., 1::2]
        gate = gate.clamp(min=None, max=self.limit)
        up = up.clamp(min=-self.limit, max=self.limit)
        glu = gate * torch.sigmoid(gate * self.alpha)
        return (up + 1) * glu


class ClampedByFunctions(Clamped):
    def forward(self, both):
        gate, up = torch.chunk(both, 2, dim=-1)
        up = torch.clamp(up, -0.75, 0.75)
        return F.silu(torch.clamp(gate, max=0.75)) * (0.5 + up)


class ClampedBelow(Clamped):
    def forward(self, both):
        gate, up = both.chunk(2, -1)
        return F.silu(gate.clamp(-0.75, 0.75)) * up.clamp(-0.75, 0.75)


class OtherLimits(Clamped):
    def forward(self, both):
        gate, up = both.chunk(2, -1)
        return F.silu(gate.clamp(max=0.75)) * up.clamp(-0.5, 0.75)


class ClampUsedTwice(Clamped):
    def forward(self, both):
        gate, up = both.chunk(2, -1)
        up = up.clamp(-0.75, 0.75)
        return F.silu(gate.clamp(max=0.75)) * up + up


@pytest.mark.parametrize("make, is_limited", [
    (Clamped, True), (ClampedByFunctions, True), (ClampedBelow, False), (OtherLimits, False),
    (ClampUsedTwice, False), (partial(Clamped, alpha=1.5), None),
    (partial(Clamped, limit=0.0), False), (partial(Clamped, limit=float("inf")), False),
])  # fmt: skip
def test_clamped(make, is_limited, device):
    model = make()
    x = 2 * torch.randn(5, 8, dtype=torch.float64, device=device)
    expected = compute(model, x)
    with replace_activations(model) as replacement:
        assert ("forward" in operators(replacement)) == (is_limited is not None)
        with Operators() as called:
            model(x)
        assert ("aten::clamp" not in called.names) == bool(is_limited)
        assert error(compute(model, x), expected) < 1e-12
        assert error(compute(copy.deepcopy(model), x), expected) < 1e-12
        assert error(compute(pickle.loads(pickle.dumps(model)), x), expected) < 1e-12
        model.alpha = model.limit = 0.5
        other = Clamped(0.5, 0.5) if type(make) is type and make is Clamped else None
        assert other is None or error(compute(model, x), compute(other, x)) < 1e-12


# Units with a weight for each row


class Routed(Parts):
    def forward(self, x, weight=None):
        weight = x[..., 0] if weight is None else weight
        return self.act(self.fc1(x)) * self.up(x) * weight[..., None]


class RoutedFirst(Parts):
    def forward(self, x):
        y = self.up(x) * self.act(self.fc1(x))
        return x[..., 0].unsqueeze(-1) * y


class WeightedByColumn(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x) * self.fc1.bias


class WeightedByOne(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x) * x[..., :1].mean()


class WeightUsedTwice(Parts):
    def forward(self, x):
        y = self.act(self.fc1(x)) * self.up(x)
        return y * x[..., :1] + y


@pytest.mark.parametrize("cls, is_row", [
    (Routed, True), (RoutedFirst, True), (WeightedByColumn, False), (WeightedByOne, False),
    (WeightUsedTwice, None),
])  # fmt: skip
@pytest.mark.parametrize("recompute", [False, True])
def test_weighted(cls, is_row, recompute, device):
    model = cls().to(device).double()
    x = torch.randn(5, 7, 6, dtype=torch.float64, device=device)
    expected = compute(model, x)
    replacement = replace_activations(model, recompute=recompute)
    operator = "glu(act)" if is_row is None else "weighted_glu(act)"
    assert operators(replacement) == {"forward": operator}
    with torch.no_grad(), Operators() as called:
        model(x)
    assert ("aten::mul" not in called.names) == bool(is_row)
    assert error(compute(model, x), expected) < 1e-12
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, x), expected) < 1e-12


# A linear layer before the gate, or after it


class Mlp(Parts):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class MlpByName(Parts):
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


LINEAR = {
    "mlp": (lambda: Mlp(GELU()), "bias_gelu(fc1, act)", "gate_linear(act, fc2)"),
    "by name": (lambda: MlpByName(GELU()), "bias_gelu(fc1, act)", "gate_linear(act, fc2)"),
    "sequential": (mlp_of_modules, "bias_gelu(0, 1)", "gate_linear(1, 2)"),
    "gated": (GatedMlp, "glu(act)", "glu_linear(act, fc2)"),
}


@pytest.mark.parametrize("case", LINEAR)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_recomputing_has_the_same_bits_for_less_memory(case, dtype):
    make, fused, recomputed = LINEAR[case]
    model = make().to(dtype)
    x = torch.randn(5, 6, dtype=dtype)
    results, kept = [], []
    for recompute in (False, True):
        with replace_activations(model, recompute=recompute) as replacement:
            results.append(compute(model, x))
            with SavedBytes() as saved:
                model(x)
            kept.append(saved.total)
    with replace_activations(model, fuse_bias=True, recompute=True) as replacement:
        assert operators(replacement) == {"forward": recomputed}
    with replace_activations(model, fuse_bias=True) as replacement:
        assert operators(replacement) == {"forward": fused}
    assert all(map(bits.same, *results))
    assert kept[0] - kept[1] == 5 * 8 * dtype.itemsize


@pytest.mark.parametrize("case", LINEAR)
def test_linear_layers_stay(case):
    make, *_ = LINEAR[case]
    model = make().double()
    before, state = tree(model), model.state_dict()
    x = torch.randn(5, 6, dtype=torch.float64)
    expected = compute(model, x)
    for options in ({"fuse_bias": True}, {"recompute": True}):
        with replace_activations(model, **options) as replacement:
            assert all(new.startswith("gate(") for _, new in changes(replacement).values())
            assert model.state_dict().keys() == state.keys()
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fusing_a_bias_saves_no_more_memory(dtype):
    x = torch.randn(64, 6, dtype=dtype, requires_grad=True)
    saved = {}
    for fuse_bias in (None, False, True):
        model = Mlp(GELU()).to(dtype)
        if fuse_bias is not None:
            replace_activations(model, fuse_bias=fuse_bias)
        with SavedBytes() as hooks:
            model(x)
        saved[fuse_bias] = hooks.total
    bias = 8 * dtype.itemsize  # a parameter, which is there anyway
    assert saved[False] == saved[None] and saved[True] <= saved[None] + bias


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


def own_forward(model):
    model.forward = lambda x: model.fc2(model.act(model.fc1(x)))


def without_bias(model):
    model.fc1 = Linear(6, 8, bias=False)
    model.fc2 = torch.nn.Identity()


NOT_LINEAR = {
    "no bias": without_bias,
    "parametrised": parametrised,
    "subclass": subclassed,
    "hook": hooked("register_forward_hook"),
    "pre-hook": hooked("register_forward_pre_hook"),
    "backward hook": hooked("register_full_backward_hook"),
    "dropout": dropped,
}


@pytest.mark.parametrize("case", NOT_LINEAR)
def test_not_linear(case):
    model = Mlp(GELU())
    NOT_LINEAR[case](model)
    x = torch.randn(2, 4, 6)
    expected = model(x)
    replacement = replace_activations(model, fuse_bias=True, recompute=True)
    assert [*changes(replacement).values()] == [(GELU, "gate(normal)")]
    assert not operators(replacement)
    name = "act.1" if case == "dropout" else "act"
    assert replacement.not_fused.keys() == replacement.not_recomputed.keys() == {name}
    assert torch.allclose(model(x), expected, atol=1e-6)


@pytest.mark.parametrize("modules, why", [
    ((GELU(), torch.nn.LayerNorm(6)), ("no Linear is seen to come before it", "1 after it")),
    ((torch.nn.LayerNorm(6), GELU()), ("0 before it is no plain", "no Linear is seen to come")),
    ((SubclassedLinear(6, 6), GELU(), SubclassedLinear(6, 6)), ("0 before it", "2 after it")),
])  # fmt: skip
def test_not_linear_in_a_sequence(modules, why):
    model = Sequential(*modules)
    replacement = replace_activations(model, fuse_bias=True, recompute=True)
    (not_fused,), (not_recomputed,) = (
        replacement.not_fused.values(),
        replacement.not_recomputed.values(),
    )
    assert why[0] in not_fused and why[1] in not_recomputed and not operators(replacement)


def test_a_linear_layer_in_two_places():
    linear = Linear(6, 6)
    model = Sequential(linear, GELU(), linear).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = compute(model, x)
    for options in ({"fuse_bias": True}, {"recompute": True}):
        with replace_activations(model, **options) as replacement:
            assert operators(replacement)
            assert error(compute(model, x), expected) < 1e-12


def test_one_call_after_another():
    model = Mlp(GELU())
    first = replace_activations(model)
    second = replace_activations(model, fuse_bias=True)
    third = replace_activations(model, recompute=True)
    assert operators(second) == {"forward": "bias_gelu(fc1, act)"}
    assert operators(third) == {"forward": "gate_linear(act, fc2)"}
    assert not replace_activations(model, fuse_bias=True, recompute=True).changed
    with pytest.raises(RuntimeError, match=r"replace_activations: restore: __class__ of a Mlp no"):
        second.restore()
    third.restore()
    second.restore()
    first.restore()
    assert type(model) is Mlp and type(model.act) is GELU


def test_an_activation_that_keeps_a_code():
    """Of its derivative: no option drops that."""
    for cls in (Mlp, GatedMlp):
        model = cls(nn.GELU(save="8bit"))
        replacement = replace_activations(model, fuse_bias=True, recompute=True)
        assert operators(replacement) == {"forward": "bias_gelu(fc1, act)"}
        assert model.act.save == "8bit"
        with Operators() as called:
            model(torch.randn(4, 6))
        assert any("coded" in name for name in called.names)
    assert not reasons(replacement).get("act", "").startswith("left alone")


class Counted(Gated):
    """Its subclasses are listed, and changed: none is to hear of ours."""

    known = []

    def __init_subclass__(cls, *, name):
        cls.known.append(name)
        cls.forward = lambda self, x: 2 * super(cls, self).forward(x)


def test_a_class_that_hears_of_its_subclasses():
    model, x = Counted(), torch.randn(4, 6)
    expected = model(x)
    assert operators(replace_activations(model)) == {"forward": "glu(act)"}
    assert torch.allclose(model(x), expected, atol=1e-6) and not Counted.known


class Meta(type):
    def __new__(cls, name, bases, namespace):
        if bases != (Gated,):
            raise TypeError("it is the last")
        return super().__new__(cls, name, bases, namespace)


class Final(Gated, metaclass=Meta):
    pass


def test_a_class_from_which_none_can_be_derived():
    model = Final()
    x = torch.randn(4, 6)
    expected = model(x)
    replacement = replace_activations(model)
    assert "no class can be derived from Final: it is the last" in replacement.not_fused["act"]
    assert type(model) is Final and torch.allclose(model(x), expected)


class Reflective(Gated):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        assert isinstance(self.act, SiLU) and not self.act.inplace
        return super().forward(x)


def test_a_module_finds_itself_as_it_was():
    model, x = Reflective(), torch.randn(4, 6)
    model.act.tag = "kept"
    expected, representation = model(x), repr(model)
    act = model.act
    replace_activations(model, fuse_bias=True, recompute=True)
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert model.act is act and act.tag == "kept" and repr(model) == representation
    assert Reflective.calls == 2


def test_a_class_that_is_patched_by_its_module():
    """Who writes type(module).forward means the class it was written with, and all of its modules,
    which stay patched after restore()."""
    model, other, x = Gated(), Gated(), torch.randn(4, 6)
    replacement = replace_activations(model)
    forward = Gated.forward
    try:
        type(model).forward = lambda self, x: self.up(x)
        for _ in range(2):
            assert torch.equal(model(x), model.up(x)) and torch.equal(other(x), other.up(x))
            replacement.restore()
    finally:
        Gated.forward = forward


def test_parametrized_itself():
    model, x = Gated(), torch.randn(4, 6)
    model.register_parameter("scale", torch.nn.Parameter(torch.ones(1)))
    torch.nn.utils.parametrize.register_parametrization(model, "scale", torch.nn.Identity())
    expected = model(x)
    replacement = replace_activations(model)
    assert replacement.not_fused["act"] == "its module is parametrized"
    assert torch.allclose(model(x), expected, atol=1e-6)
    torch.nn.utils.parametrize.remove_parametrizations(model, "scale")
    assert torch.allclose(model(x), expected, atol=1e-6)


class ChangesItself(Gated):
    def prepare(self):
        self.up = WrittenByChild().up

    def forward(self, x):
        x = self.fc1(x)
        self.prepare()
        return self.act(x) * self.up(x)


class UsesItsClass(Gated):
    def forward(self, x):
        return super(self.__class__, self).forward(x)


@pytest.mark.parametrize("cls", [ChangesItself, UsesItsClass])
def test_not_fused_for_what_another_method_does(cls):
    model = cls()
    plain, x = copy.deepcopy(model), torch.randn(4, 6)
    assert not operators(replace_activations(model))
    with torch.no_grad():
        assert torch.allclose(model(x), plain(x), atol=1e-6)


@pytest.mark.parametrize("shape", [(1,), (4, 8)])
def test_biases_of_other_shapes(shape):
    model, x = Mlp(GELU()), torch.randn(4, 6)
    model.fc1.bias = torch.nn.Parameter(torch.randn(shape))
    expected = model(x)
    replace_activations(model, fuse_bias=True)
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_a_child_that_is_replaced_during_the_call():
    model, x = mlp_of_modules(), torch.randn(4, 6)

    def replace_last(module, arguments):
        model[2] = torch.nn.Identity()

    replace_activations(model, recompute=True)
    model[0].register_forward_pre_hook(replace_last)
    assert torch.allclose(model(x), F.gelu(model[0](x), approximate="tanh"), atol=1e-6)


class UpFirstOfAll(Parts):
    def forward(self, x):
        y = self.up(x)
        return self.fc2(self.act(self.fc1(x))), y


@pytest.mark.parametrize("name", ["fc1", "act", "fc2"])
@pytest.mark.parametrize("options", [{"fuse_bias": True}, {"recompute": True}], ids=str)
def test_a_hook_that_comes_during_the_call(name, options):
    """After the guards were asked: the operators ask once more."""
    results = []
    model = UpFirstOfAll(GELU()).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    for is_replaced in (False, True):
        copied = copy.deepcopy(model)

        def double(module, arguments, output):
            return 2 * output

        def register(module, arguments, copied=copied):
            getattr(copied, name).register_forward_hook(double)

        if is_replaced:
            replace_activations(copied, **options)
        copied.up.register_forward_pre_hook(register)
        results.append(copied(x)[0].detach())
    assert error(results[1:], results[:1]) < 1e-12


def test_patched_formulas(monkeypatch):
    model, gated, x = Sequential(GELU(), SiLU()), Gated(), torch.randn(4, 6)
    for replaced in (model, gated):
        replace_activations(replaced, recompute=True)
    monkeypatch.setattr(SiLU, "forward", lambda self, x: 2 * x)
    assert torch.allclose(model(x), 2 * F.gelu(x), atol=1e-6)
    assert torch.allclose(gated(x), 2 * gated.fc1(x) * gated.up(x), atol=1e-6)
    monkeypatch.setattr(F, "gelu", lambda x, approximate: 0 * x)
    assert not model(x).any()


class Matrix:
    def mul(self, other):
        return other


class OfAnotherClass(Parts):
    def forward(self, x):
        return Matrix().mul(self.act(self.fc1(x)))


def test_a_method_of_what_is_no_tensor():
    model, x = OfAnotherClass(), torch.randn(4, 6)
    expected = model(x)
    replace_activations(model)
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_a_hook_from_another_thread():
    """Which comes and goes while the module is called: the bias is added once."""
    model, x = Mlp(GELU()).double(), torch.randn(4, 6, dtype=torch.float64)
    replace_activations(model, fuse_bias=True)
    expected = model(x)
    stopped = threading.Event()

    def register():
        while not stopped.is_set():
            model.fc1.register_forward_hook(lambda *arguments: None).remove()

    thread = threading.Thread(target=register)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(1000):
            assert error([model(x)], [expected]) < 1e-12
    finally:
        stopped.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_functions_of_torch_that_are_patched(monkeypatch):
    model, x = Mlp(GELU()), torch.randn(4, 6)
    linear = F.linear
    replace_activations(model, fuse_bias=True)
    monkeypatch.setattr(F, "linear", lambda *arguments: 2 * linear(*arguments))
    expected = 2 * linear(
        F.gelu(2 * linear(x, model.fc1.weight, model.fc1.bias)), *model.fc2.parameters()
    )
    assert torch.allclose(model(x), expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_complex_numbers_and_other_layouts():
    model = Sequential(SiLU())
    x = torch.randn(4, dtype=torch.complex64)
    expected = model(x)
    replace_activations(model)
    assert torch.equal(model(x), expected)
    nested = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    for part, y in zip(nested.unbind(), model(nested).unbind(), strict=True):
        assert torch.allclose(y, F.silu(part))


def test_torchscript_is_left_alone():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(Sequential(Linear(6, 6), GELU()))
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and "RecursiveScriptModule" in reasons(replacement)["1"]
