"""replace_activations: what it replaces, fuses, leaves alone and puts back.

Models of transformers and timm are in test_replace_models.py.
"""

import copy
import io
import pickle
import re
import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from replacements import SavedBytes, changes, error, reasons, tree
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import Identity, Linear, Module, Sequential
from torch.utils._python_dispatch import TorchDispatchMode

from gelu_kernels import nn, replace_activations, replace_gelu
from gelu_kernels.replace.compositions import compositions, factors
from gelu_kernels.replace.experts import clamped_glu
from gelu_kernels.replace.glu import Factor, GLUGate

GELU = torch.nn.GELU
SiLU = torch.nn.SiLU


class Mlp(Module):
    def __init__(self, activation=None, bias=True):
        super().__init__()
        self.fc1 = Linear(6, 8, bias)
        self.act = activation or GELU()
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
    assert not any(type(module) in (GELU, SiLU) for module in model.modules())
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
    assert changes(replacement) == dict.fromkeys(
        ["list.0", "list.2", "last", "mlp.act"], (GELU, nn.GELU)
    )
    assert [model["list"][0].approximate, model["list"][2].approximate] == ["none", "tanh"]
    assert model["last"].approximate == "tanh" and model["last"].training
    assert not model["mlp"].act.training
    assert not replacement.left_alone
    assert list(model) == ["list", "last", "mlp"]


def test_shared_instances_stay_shared():
    shared = GELU()
    block = Mlp(shared)
    model = Sequential(block, shared, block)
    replacement = replace_activations(model)
    assert model[0].act is model[1] and type(model[1]) is nn.GELU
    assert changes(replacement).keys() == {"0.act", "1"}  # a block that is shared counts once
    replacement.restore()
    assert model[0].act is model[1] is shared


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
    assert "act" in {change.name for change in replacement.changed}
    assert "act" not in dict(model.named_modules())
    assert type(model.fc1) is (nn.LinearGELU if fuse_bias else Linear)
    assert not fuse_bias or model.fc1.approximate == approximate
    assert error(compute(model, x), expected) < 1e-12
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
    replacement.restore()
    assert model.act is old


def test_activation_classes_are_not_functions():
    model = Mlp()
    model.act_layer = partial(GELU, approximate="tanh")
    model.act_class = GELU
    model.other_class = SiLU
    assert changes(replace_activations(model)).keys() == {"act"}


# PyTorch's encoder layer, whose inference path does not call the activation


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        return function(*args, **(kwargs or {}))


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


class DerivedGELU(GELU):
    pass


class DerivedSiLU(SiLU):
    pass


class ClippedGELU(Module):
    def forward(self, x):
        return F.gelu(x).clip(-1, 1)


class GatedByFunction(Module):
    def forward(self, x):
        gate, up = x.chunk(2, -1)
        return F.gelu(gate) * up


class LlamaOfMeta(Module):
    def forward(self, x):
        return F.silu(self.w1(x)) * self.w3(x)


def fast_gelu(x):
    return x


def with_forward_hook(module):
    module.register_forward_hook(lambda module, arguments, output: output)
    return module


def with_own_forward(module):
    module.forward = module.forward
    return module


LEFT_ALONE = {
    "subclass": (lambda: Sequential(DerivedGELU()), "0", "DerivedGELU.* is not known"),
    "subclass of SiLU": (lambda: Sequential(DerivedSiLU()), "0", "DerivedSiLU.* is not known"),
    "other class": (lambda: Sequential(ClippedGELU()), "0", "ClippedGELU is not known"),
    "other function": (lambda: Mlp(fast_gelu), "act", "fast_gelu is not known"),
    "partial": (lambda: Mlp(partial(fast_gelu)), "act", "fast_gelu.* is not known"),
    "in forward": (lambda: Sequential(GatedByFunction()), "0", "forward calls gelu itself"),
    "SiLU in forward": (lambda: Sequential(LlamaOfMeta()), "0", "forward calls silu itself"),
    "in place": (lambda: Mlp(SiLU(inplace=True)), "act", "overwrites its input"),
    "in place, function": (
        lambda: Mlp(partial(F.silu, inplace=True)),
        "act",
        "overwrites its input",
    ),
    "alpha": (lambda: ClampedExperts(alpha=1.5), "_apply_gate", "its alpha is 1.5"),
    "limit": (lambda: ClampedExperts(limit=0.0), "_apply_gate", "its limit 0.0"),
    "hooks": (lambda: Mlp(with_forward_hook(GELU())), "act", "it has hooks"),
    "own forward": (lambda: Mlp(with_own_forward(GELU())), "act", "its forward was replaced"),
    "root": (GELU, "", "cannot be replaced in place"),
    "root SiLU": (SiLU, "", "cannot be replaced in place"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case, capsys):
    make, name, why = LEFT_ALONE[case]
    model = make()
    before = tree(model)
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and list(reasons(replacement)) == [name]
    assert re.search(why, reasons(replacement)[name])
    assert why.split(".*")[-1] in capsys.readouterr().out
    assert tree(model) == before


def test_nothing_to_replace(capsys):
    replacement = replace_activations(Sequential(Linear(2, 2), torch.nn.ReLU()), fuse_bias=True)
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
        "  0: torch.nn.modules.linear.Linear -> gelu_kernels.nn.LinearGELU('tanh')",
        "  1: torch.nn.modules.activation.GELU('tanh') -> torch.nn.modules.linear.Identity",
        "  3.act: torch.nn.functional.gelu -> gelu_kernels.functional.gelu",
        f"  2: left alone: {ClippedGELU.__module__}.ClippedGELU is not known to be one of the "
        "gates",
        "  3.act: not fused: the Linear before it has no bias",
    ]


def test_replace_gelu_leaves_all_else():
    model = Sequential(SiLU(), DerivedSiLU(), Gated(SiLU()), Gated(GELU()), ClampedExperts())
    replacement = replace_gelu(model)
    assert str(replacement).splitlines() == [
        "replace_gelu: 1 changed, 0 left alone",
        "  3.act: torch.nn.modules.activation.GELU('none') -> gelu_kernels.nn.GELU('none')",
    ]
    assert str(replace_gelu(SiLU())) == "replace_gelu: nothing to replace"
    with pytest.raises(TypeError, match=r"replace_gelu: model must be a torch\.nn\.Module"):
        replace_gelu(F.gelu)


# Gated linear units


class Gated(Module):
    def __init__(self, activation=None):
        super().__init__()
        self.gate, self.up = Linear(6, 8), Linear(6, 8)
        self.act = activation or SiLU()

    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


class UpFirst(Gated):
    def forward(self, x):
        return self.up(x) * self.act(self.gate(x))


class ByName(Gated):
    def forward(self, x):
        if x is None:
            return x
        h = self.act(self.gate(x))
        up = self.up(x)
        return (h * up).clone()


class Thrice(Gated):
    def forward(self, x):
        x = torch.cat([self.gate(x), self.up(x)], -1)
        gate, up = x.chunk(2, dim=-1)
        y = self.act(gate) * up * 2
        return y + self.act(up) * self.act(gate)


class ByMethod(Gated):
    def forward(self, x):
        return self.product(self.gate(x), self.up(x))

    def product(self, x, up):
        return self.act(x) * up


GATED = [Gated, UpFirst, ByName, Thrice, ByMethod]


class Broadcast(Gated):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)[..., :1]


class Scaled(Gated):
    def forward(self, x):
        return 2.0 * self.act(self.gate(x)) + self.up(x)


class Promoted(Gated):
    def forward(self, x):
        return self.act(self.gate(x).float()) * self.up(x)


PRODUCTS = [*GATED, Broadcast, Scaled, Promoted]


@pytest.mark.parametrize("cls", PRODUCTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "make", [SiLU, partial(GELU, "tanh"), lambda: F.silu], ids=["silu", "tanh", "function"]
)
def test_gated(cls, make, device):
    activation = make()
    is_module = isinstance(activation, Module)
    model = cls(activation).to(device).double()
    x = torch.randn(5, 7, 6, dtype=torch.float64, device=device)
    expected = compute(model, x)
    replacement = replace_activations(model, fuse_bias=True)
    assert changes(replacement) == {"act": (type(activation), GLUGate if is_module else partial)}
    assert error(compute(model, x), expected) < (1e-6 if cls is Promoted else 1e-12)
    assert not replace_activations(model).changed
    replacement.restore()
    assert model.act is activation


@pytest.mark.parametrize("cls", GATED, ids=lambda c: c.__name__)
def test_gated_is_one_operator(cls):
    model = cls().eval()
    replace_activations(model)
    with torch.no_grad(), Operators() as called:
        model(torch.randn(3, 6))
    ours = {name for name in called.names if name.startswith("gelu_kernels")}
    assert ours == {"gelu_kernels::glu_forward"} | (
        {"gelu_kernels::gate_forward"} if cls is Thrice else set()
    )
    assert not called.names & {"aten::silu", "aten::sigmoid"}


@pytest.mark.parametrize("cls", PRODUCTS, ids=lambda c: c.__name__)
def test_gated_compiles(cls):
    model = cls().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = compute(model, x)
    replace_activations(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, x), expected) < (1e-6 if cls is Promoted else 1e-12)


@pytest.mark.parametrize("strict", [False, True])
def test_gated_exports(strict):
    model = UpFirst().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = model(x)
    replace_activations(model)
    program = torch.export.export(model, (x,), strict=strict)
    assert "glu" in str(program.graph)
    assert error([program.module()(x)], [expected]) < 1e-12


class Added(Gated):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x) + self.act(x)


class Read(Gated):
    def forward(self, x):
        h = self.act(self.gate(x))
        return h * self.up(x) + h


class Augmented(Gated):
    def forward(self, x):
        h = self.act(self.gate(x))
        h *= self.up(x)
        return h


class Written(Gated):
    def forward(self, x):
        x = self.gate(x)
        h = self.act(x)
        x.mul_(2)
        return h * x


class WrittenIndex(Gated):
    def forward(self, x):
        x = self.gate(x)
        h = self.act(x)
        x[0] = 1
        return h * x


class WrittenAtOnce(Gated):
    def forward(self, x):
        x = self.gate(x)
        return self.act(x) * x.add_(1)


class Power(Gated):
    def forward(self, x):
        return self.act(self.gate(x)) ** 2 * self.up(x)


class Passed(Gated):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.act, self.gate(x)) * self.up(x)


class Multiplied(Gated):
    def forward(self, x):
        return torch.mul(self.act(self.gate(x)), self.up(x))


class Inherited(Gated):
    def forward(self, x):
        return super().forward(x) + self.act(x)


@pytest.mark.parametrize(
    "cls",
    [
        Added,
        Read,
        Augmented,
        Written,
        WrittenIndex,
        WrittenAtOnce,
        Power,
        Passed,
        Multiplied,
        Inherited,
    ],
    ids=lambda c: c.__name__,
)
def test_not_gated(cls):
    assert "act" in factors(Gated) and "act" not in factors(cls)
    model = cls()
    assert changes(replace_activations(model)) == {"act": (SiLU, nn.SiLU)}


def test_gated_with_own_forward():
    model = Gated()
    model.forward = lambda x: model.act(x)
    assert changes(replace_activations(model)) == {"act": (SiLU, nn.SiLU)}


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


def test_shared_between_a_gate_and_another():
    shared = SiLU()
    model = Sequential(Gated(shared), Gated(shared), shared)
    replace_activations(model)
    assert model[0].act is model[1].act and type(model[0].act) is GLUGate
    assert type(model[2]) is nn.SiLU


def test_factor_is_no_tensor():
    factor = Factor(torch.randn(3), "logistic")
    for use in (torch.relu, lambda f: torch.ones(3) + f, lambda f: torch.stack([f])):
        with pytest.raises(TypeError, match="Factor"):
            use(factor)


# The clamped unit of gpt-oss


class ClampedExperts(Module):
    def __init__(self, alpha=1.702, limit=0.75):
        super().__init__()
        self.alpha, self.limit = alpha, limit

    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up[..., ::2], gate_up[..., 1::2]
        gate = gate.clamp(min=None, max=self.limit)
        up = up.clamp(min=-self.limit, max=self.limit)
        glu = gate * torch.sigmoid(gate * self.alpha)
        gated_output = (up + 1) * glu
        return gated_output

    def forward(self, x):
        return self._apply_gate(x)


class OtherOffset(ClampedExperts):
    def _apply_gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up[..., ::2], gate_up[..., 1::2]
        gate = gate.clamp(min=None, max=self.limit)
        up = up.clamp(min=-self.limit, max=self.limit)
        glu = gate * torch.sigmoid(gate * self.alpha)
        gated_output = (up + 2) * glu
        return gated_output


def test_clamped_glu(device):
    model = ClampedExperts()
    x = 2 * torch.randn(5, 8, dtype=torch.float64, device=device)
    assert (x > 0.75).any() and (x < -0.75).any()
    expected = compute(model, x)
    with replace_activations(model) as replacement:
        assert changes(replacement).keys() == {"_apply_gate"}
        assert model._apply_gate.func is clamped_glu
        assert error(compute(model, x), expected) < 1e-12
        assert error(compute(copy.deepcopy(model), x), expected) < 1e-12
        assert error(compute(pickle.loads(pickle.dumps(model)), x), expected) < 1e-12
        assert not replace_activations(model).changed
    assert "_apply_gate" not in vars(model)
    assert not replace_activations(OtherOffset()).changed


# Fusion


def test_fusion_keeps_parameters_and_state_dict():
    model = Sequential(Mlp(), Linear(6, 6), GELU("tanh"))
    parameters = dict(model.named_parameters())
    state = model.state_dict()
    replacement = replace_activations(model, fuse_bias=True)
    assert changes(replacement) == {
        "0.fc1": (Linear, nn.LinearGELU),
        "0.act": (GELU, Identity),
        "1": (Linear, nn.LinearGELU),
        "2": (GELU, Identity),
    }
    assert model[1].approximate == "tanh" and not replacement.left_alone
    after = dict(model.named_parameters())
    assert list(after) == list(parameters)
    assert all(after[name] is parameters[name] for name in after)
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fusion_saves_no_more_memory(dtype):
    x = torch.randn(64, 6, dtype=dtype, requires_grad=True)
    saved = {}
    for fuse_bias in (None, False, True):
        model = Mlp().to(dtype)
        if fuse_bias is not None:
            replace_activations(model, fuse_bias=fuse_bias)
        with SavedBytes() as hooks:
            model(x)
        saved[fuse_bias] = hooks.total
    bias = 8 * dtype.itemsize  # a parameter, which is there anyway
    assert saved[False] == saved[None] and saved[True] <= saved[None] + bias


def test_parameters_set_after_fusion_survive_restore():
    model = Mlp()
    before = tree(model)
    replacement = replace_activations(model, fuse_bias=True)
    model.to(torch.float64)
    model.eval()
    state = {name: torch.ones_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    weight = model.fc1.weight
    replacement.restore()
    assert {name: module for name, (module, _) in tree(model).items()} == {
        name: module for name, (module, _) in before.items()
    }
    assert model.fc1.weight is weight and not model.fc1.training and not model.act.training
    assert weight.dtype == torch.float64 and (weight == 1).all()


def shared_linear():
    model = Sequential(Linear(6, 6), GELU(), Linear(6, 6))
    model[2] = model[0]
    return model


def parametrised():
    model = Mlp()
    torch.nn.utils.parametrizations.weight_norm(model.fc1)
    return model


def hooked(register):
    model = Mlp()
    getattr(model.fc1, register)(lambda *arguments: None)
    return model


def owner_with_own_forward():
    model = Mlp()
    model.forward = lambda x: model.fc1(x) + model.act(model.fc1(x))
    return model


class SubclassedLinear(Linear):
    pass


NOT_FUSED = {
    "no bias": (lambda: Mlp(bias=False), "has no bias"),
    "shared": (shared_linear, "is shared"),
    "parametrised": (parametrised, "ParametrizedLinear comes before"),
    "subclass": (lambda: Sequential(SubclassedLinear(6, 6), GELU()), "SubclassedLinear comes"),
    "convolution": (lambda: Sequential(torch.nn.Conv1d(4, 4, 1), GELU()), "Conv1d comes before"),
    "hook": (lambda: hooked("register_forward_hook"), "has hooks"),
    "pre-hook": (lambda: hooked("register_forward_pre_hook"), "has hooks"),
    "backward hook": (lambda: hooked("register_full_backward_hook"), "has hooks"),
    "norm between": (lambda: Sequential(Linear(6, 6), torch.nn.LayerNorm(6), GELU()), "LayerNorm"),
    "first": (lambda: Sequential(GELU(), Linear(6, 6)), "no Linear is seen"),
    "own forward": (owner_with_own_forward, "no Linear is seen"),
}


@pytest.mark.parametrize("case", NOT_FUSED)
def test_not_fused(case):
    make, why = NOT_FUSED[case]
    model = make()
    x = torch.randn(2, 4, 6)
    expected = model(x)
    replacement = replace_activations(model, fuse_bias=True)
    ((_, kinds),) = changes(replacement).items()
    assert kinds == (GELU, nn.GELU)
    (reason,) = reasons(replacement).values()
    assert reason.startswith("not fused: ") and why in reason
    assert not any(isinstance(module, nn.LinearGELU) for module in model.modules())
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_fusing_after_replacing():
    model = Mlp()
    first = replace_activations(model)
    second = replace_activations(model, fuse_bias=True)
    assert changes(second) == {"fc1": (Linear, nn.LinearGELU), "act": (nn.GELU, Identity)}
    assert not replace_activations(model, fuse_bias=True).changed
    with pytest.raises(
        RuntimeError, match=r"replace_activations: restore: act no longer holds gelu_ker"
    ):
        first.restore()
    assert type(model.fc1) is nn.LinearGELU
    second.restore()
    first.restore()
    assert type(model.fc1) is Linear and type(model.act) is GELU


def test_torchscript_is_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(Sequential(Linear(6, 6), GELU()))
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and "RecursiveScriptModule" in reasons(replacement)["1"]


# Which attributes follow one another


class TwoStatements(Mlp):
    def forward(self, x):
        x = self.fc1(x)
        x = self.act(x)
        return self.fc2(x)


class Returned(Module):
    def forward(self, x):
        if x is not None:
            h = self.fc1(x)
            return self.act(h)
        return x


class WithinMore(Module):
    def forward(self, x, /):
        h = self.fc1(x)
        h = self.dropout(self.act(h)) * 2
        return h + self.fc1.weight.sum()


class Wrapped(Mlp):
    forward = torch.no_grad()(Mlp.forward)


class UsesLinearTwice(Module):
    def forward(self, x):
        return self.act(self.fc1(x)) + self.fc1(x)


class UsesActivationTwice(Module):
    def forward(self, x):
        return self.act(self.act(self.fc1(x)))


class ReadsTheSumLater(Module):
    def forward(self, x):
        h = self.fc1(x)
        y = self.act(h)
        return y + h


class ReadsTheSumTwice(Module):
    def forward(self, x):
        h = self.fc1(x)
        h = self.act(h) + 2 * h
        return h


class BetweenThem(Module):
    def forward(self, x):
        h = self.fc1(x)
        print(h)
        h = self.act(h)
        return h


class AnotherMethod(Mlp):
    def preactivation(self, x):
        return self.fc1(x)


class Overridden(Mlp):
    def forward(self, x):
        return self.fc1(x) + super().forward(x)


class AnotherArgument(Module):
    def forward(self, x):
        return self.act(self.fc1(x), True)


@pytest.mark.parametrize("cls", [Mlp, Returned, WithinMore, Wrapped], ids=lambda c: c.__name__)
def test_compositions(cls):
    assert compositions(cls)["act"] == "fc1"


@pytest.mark.parametrize(
    "cls",
    [
        UsesLinearTwice, UsesActivationTwice, ReadsTheSumLater, ReadsTheSumTwice, BetweenThem,
        AnotherMethod, Overridden, AnotherArgument, TwoStatements, Module,
    ],
    ids=lambda c: c.__name__,
)  # fmt: skip
def test_no_compositions(cls):
    # TwoStatements inherits from Mlp, whose forward might be called.
    assert "act" not in compositions(cls)


def test_source_that_cannot_be_read():
    namespace = {"Module": Module}
    exec("class Unread(Module):\n    def forward(self, x): return self.act(self.fc1(x))", namespace)
    assert compositions(namespace["Unread"]) == {}


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
        assert type(copied[2]) is nn.GELU  # a copy stays as it is


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
