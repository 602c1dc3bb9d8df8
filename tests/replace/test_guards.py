"""A replaced model stays equal to the original when classes, hooks or torch's functions change."""

import copy
import sys
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Linear, Sequential, SiLU

from gelu_kernels import replace_activations
from gelu_kernels.replace.reasons import PARAMETRIZED
from tests.cases import each
from tests.replace.replacements import error, modules, operators, reasons
from tests.replace.test_gated import Parts
from tests.replace.test_linear import BOTH, FUSED, RECOMPUTED, Mlp, mlp_of_modules


class Gated(Parts):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)


# The module and its class


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


class Counted(Gated):
    """Lists and changes its subclasses; ours must not be among them."""

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
    replace_activations(model, **BOTH)
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert model.act is act and act.tag == "kept" and repr(model) == representation
    assert Reflective.calls == 2


def test_a_class_that_is_patched_by_its_module():
    """Assigning to type(module).forward patches the original class and all of its modules, also
    after restore()."""
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
    assert replacement.not_fused == {"act": PARAMETRIZED}
    assert torch.allclose(model(x), expected, atol=1e-6)
    torch.nn.utils.parametrize.remove_parametrizations(model, "scale")
    assert torch.allclose(model(x), expected, atol=1e-6)


# Hooks and children that come during a call, after the guards have passed


class UpFirstOfAll(Parts):
    def forward(self, x):
        y = self.up(x)
        return self.fc2(self.act(self.fc1(x))), y


@each(name=["fc1", "act", "fc2"], options=[FUSED, RECOMPUTED])
def test_a_hook_that_comes_during_the_call(name, options):
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


def test_a_child_that_is_replaced_during_the_call():
    model, x = mlp_of_modules(), torch.randn(4, 6)

    def replace_last(module, arguments):
        model[2] = torch.nn.Identity()

    replace_activations(model, recompute=True)
    model[0].register_forward_pre_hook(replace_last)
    assert torch.allclose(model(x), F.gelu(model[0](x), approximate="tanh"), atol=1e-6)


def test_a_hook_from_another_thread():
    """It comes and goes while the module is called: the bias is added once."""
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


# Patched functions of torch, and inputs other than plain tensors


def test_patched_formulas(monkeypatch):
    """Patches of an activation's class, and of functions that a method calls."""
    model, gated, x = Sequential(GELU(), SiLU()), Gated(), torch.randn(4, 6)
    swish = modules(Parts, {"BySigmoid": "return x * torch.sigmoid(x)"}, globals())["BySigmoid"]()
    for replaced in (model, gated, swish):
        replace_activations(replaced, recompute=True)
    monkeypatch.setattr(SiLU, "forward", lambda self, x: 2 * x)
    assert torch.allclose(model(x), 2 * F.gelu(x), atol=1e-6)
    assert torch.allclose(gated(x), 2 * gated.fc1(x) * gated.up(x), atol=1e-6)
    monkeypatch.setattr(F, "gelu", lambda x, approximate: 0 * x)
    assert not model(x).any()
    monkeypatch.setattr(torch, "sigmoid", torch.zeros_like)
    assert not swish(x).any()


class Matrix:
    def mul(self, other):
        return other


class OfAnotherClass(Parts):
    def forward(self, x):
        return Matrix().mul(self.act(self.fc1(x)))


def test_a_method_of_an_object_that_is_no_tensor():
    model, x = OfAnotherClass(), torch.randn(4, 6)
    expected = model(x)
    replace_activations(model)
    assert torch.allclose(model(x), expected, atol=1e-6)


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(Sequential(Linear(6, 6), GELU()))
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and "RecursiveScriptModule" in reasons(replacement)["1"]
