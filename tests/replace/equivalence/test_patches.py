"""replace_activations with code that is patched before or after it: classes, functions, decorators
and attributes; and what other code sees of the derived classes."""

import functools
import itertools
import pickle
from functools import partial
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import GELU, Linear, Module, Sequential, SiLU
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

from gelu_kernels import replace_activations
from gelu_kernels.replace import reasons
from tests.cases import each
from tests.new_process import python
from tests.replace.equivalence.outcomes import (
    MODES,
    Gated,
    Mlp,
    assert_same,
    difference,
    each_model,
    inputs,
    outcome,
    replace,
    two,
)
from tests.replace.equivalence.test_others import Doubled
from tests.replace.replacements import Operators, operators


def twice(function):
    return lambda *args, **kwargs: 2 * function(*args, **kwargs)


def is_fused(model):
    with torch.no_grad(), Operators() as called:
        model(inputs())
    return bool(called.ours)


# The class of a module


def by_assignment(cls, new):
    old = cls.forward
    cls.forward = new(old)
    yield
    cls.forward = old


def by_mock(cls, new):
    with mock.patch.object(cls, "forward", new(cls.forward)):
        yield


def by_pytest(cls, new):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, "forward", new(cls.forward))
        yield


@each_model(patch=[by_assignment, by_mock, by_pytest])
def test_a_wrapped_method_that_is_put_back(name, mode, patch):
    model, other = two(name)
    reference, _ = two(name)
    expected = outcome(reference, inputs(), False)
    replace(model, mode)
    base, own = type(reference), vars(type(reference)).get("forward")
    for _ in patch(type(model), twice):
        doubled = [2 * expected[0]]
        for patched in (model, other, reference):
            assert not difference(outcome(patched, inputs(), False), doubled)
    assert vars(base)["forward"] is own
    for patched in (model, other, reference):
        assert_same(patched, reference)
        assert not difference(outcome(patched, inputs(), False), expected)
    assert is_fused(model)


class WithHelper(Mlp):
    flag = 1

    def scaled(self, x):
        return x * self.flag

    def forward(self, x):
        return self.fc2(self.act(self.scaled(self.fc1(x))))


def test_another_method_that_is_put_back():
    model, scaled = WithHelper(), WithHelper.scaled
    replace(model, "both")
    x, cls = torch.randn(4, 6), type(model)
    expected = model(x)
    with mock.patch.object(cls, "scaled", lambda self, x: 0 * x), mock.patch.object(cls, "flag", 3):
        assert WithHelper.flag == 3 and torch.equal(model(x), model(0 * x))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, "scaled", lambda self, x: 0 * x)
        assert torch.equal(model(x), model(0 * x))
    cls.new = 1
    assert WithHelper.new == 1
    del cls.new
    assert not hasattr(WithHelper, "new")
    assert WithHelper.scaled is scaled and torch.equal(model(x), expected)


def test_an_activation_that_is_wrapped_and_put_back():
    model, forward = Sequential(Linear(6, 8), GELU()).double(), GELU.forward
    expected = model(inputs())
    replacement = replace(model, "plain")
    with mock.patch.object(type(model[1]), "forward", twice(GELU.forward)):
        assert torch.equal(model(inputs()), 2 * expected)
    replacement.restore()
    assert GELU.forward is forward and torch.equal(model(inputs()), expected)


def test_a_method_that_wraps_a_fused_one_is_read(monkeypatch):
    model = Gated()
    replace(model, "both")
    fused = type(model).forward
    wrapped = functools.wraps(fused)(lambda self, x: self.act(fused(self, x)))
    monkeypatch.setattr(Gated, "forward", wrapped)
    assert "no source is found" in replace(Gated(), "both").not_recomputed["act"]


@each(wrap=[lambda called: called, staticmethod])
def test_a_method_replaced_by_another_callable(wrap):
    model = Gated()
    replace(model, "both")
    called = mock.MagicMock(return_value=3)
    with mock.patch.object(Gated, "forward", wrap(called)):
        assert model("x") == 3
    called.assert_called_once_with("x")


class Base(Gated):
    def before(self, x):
        return 2 * x


class ByType(Base):
    def before(self, x):
        return super(type(self), self).before(x) + 1

    def forward(self, x):
        x = self.before(x)
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class Reduced(Gated):
    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))

    def __reduce__(self):
        return self.__class__, (), self.__dict__


@each(make=[Reduced, Gated])
def test_pickles_that_hold_the_class(make):
    model = make().double()
    replace(model, "both")
    model.kind = type(model)
    assert_same(pickle.loads(pickle.dumps(model)), model)


# Formulas, patched before


@each(cls=[GELU, SiLU])
def test_a_formula_that_is_patched_before(cls):
    model = Sequential(Linear(6, 8), cls(), Linear(8, 6)).double()
    with mock.patch.object(cls, "forward", lambda self, x: 2 * x):
        expected = model(inputs())
        replacement = replace(model, "both")
        assert replacement.left_alone == {"1": reasons.FORWARD_REPLACED}
        assert not replacement.changed
        assert torch.equal(model(inputs()), expected)


def test_the_function_of_an_activation_of_transformers():
    activations = pytest.importorskip("transformers.activations", reason="needs transformers")
    model = Sequential(activations.GELUActivation(), activations.GELUActivation())
    model[0].act = torch.relu
    replacement = replace(model, "plain")
    assert replacement.left_alone == {"0": reasons.ACT_REPLACED}
    model[1].act = torch.relu
    assert torch.equal(model(inputs()), inputs().relu())


PATCHED_FIRST = """
import torch
from torch import nn
from torch.nn import functional as F
twice = lambda function: lambda *args, **kwargs: 2 * function(*args, **kwargs)
{patch}
from gelu_kernels import replace_activations
class Calls(nn.Linear):
    def forward(self, x):
        return F.silu(super().forward(F.gelu(x)))
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6), nn.SiLU(), Calls(6, 6)).double()
x = torch.randn(4, 6, dtype=torch.float64)
expected = model(x)
replace_activations(model, fuse_bias=True, recompute=True)
assert torch.allclose(model(x), expected, rtol=1e-9, atol=1e-12)
"""
PATCHES = ["F.linear", "nn.Linear.forward", "F.gelu", "F.silu", "nn.Sequential.forward"]


@each(lambda name: name != "F.linear", name=PATCHES)
def test_what_is_patched_before_the_import(name):
    python(PATCHED_FIRST.format(patch=f"{name} = twice({name})"))


@each(mode=MODES)
def test_calls_of_all_modules(mode):
    reference, model = two("mlp")
    replace(model, mode)
    call = Module.__call__

    def patched(self, *args, **kwargs):
        y = call(self, *args, **kwargs)
        return 2 * y if isinstance(self, Linear) else y

    with mock.patch.object(Module, "__call__", patched):
        assert_same(model, reference)


# Functions that are attributes


class Held(Module):
    def __init__(self, act):
        super().__init__()
        self.fc1, self.act, self.fc2 = Linear(6, 8), act, Linear(8, 6)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Asked(Held):
    def forward(self, x):
        y = self.act(self.fc1(x))
        return self.fc2(2 * y if self.act is F.gelu or self.act is F.silu else y)


class WithMore(Held):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x), inplace=False))


class Changed(Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        y = super().__torch_function__(function, types, args, kwargs)
        return 2 * y if function in (F.gelu, F.silu) else y


@each(held=[*itertools.product([Held, Asked], [F.gelu, F.silu]), (WithMore, F.silu)], mode=MODES)
def test_functions_that_are_attributes(held, mode):
    cls, act = held
    reference, model = two(partial(cls, act))
    replacement = replace(model, mode)
    assert model.act is act and is_fused(model) == (cls is not WithMore)
    why = reasons.not_only_called("forward")
    assert replacement.left_alone == ({} if cls is Held else {"act": why})
    assert_same(model, reference)
    x = inputs().as_subclass(Changed)
    assert not difference([model(x).as_subclass(Tensor)], [reference(x).as_subclass(Tensor)])
    with Doubled():
        assert_same(model, reference)


def test_a_function_that_no_method_calls():
    model = Linear(2, 2)
    model.act = F.gelu
    assert replace(model, "plain").left_alone == {"act": reasons.NOT_CALLED}


# Decorators


def switched(function):
    inner = function

    @functools.wraps(function)
    def wrapper(*args):
        return inner(*args)

    def use(new):
        nonlocal inner
        inner = new

    wrapper.use = use
    return wrapper


def asking(function):
    known = [function]

    @functools.wraps(function)
    def wrapper(*args):
        return (2 if function in known else 1) * function(*args)

    return wrapper


@each(mode=MODES)
def test_a_decorator_that_is_switched(mode):
    class Decorated(Gated):
        forward = switched(Gated.forward)

    model = Decorated().double()
    replace(model, mode)
    assert is_fused(model)
    Decorated.forward.use(lambda self, x: 0 * x)
    assert not model(inputs()).any()


# Modules whose outcome fusing could change


class Gain(Module):
    def __init__(self, factor):
        super().__init__()
        self.fc, self.act, self.factor = Linear(6, 8), SiLU(), factor
        self.register_buffer("gain", torch.zeros(4, 8))

    def forward(self, x):
        h = self.fc(x)
        if self.factor == "shifted":
            y = self.act(h) * (self.gain + 1)
        else:
            y = self.act(h.clamp(max=2.0)) * self.gain.clamp(min=-2.0, max=2.0)
        self.gain.lerp_(h.detach(), 0.1)
        return y


class Asking(Gated):
    forward = asking(Gated.forward)


# The operators. Gain overwrites a factor before backward, which the original does not save.
FUSED = {
    ByType: {},
    Asking: {},
    partial(Gain, "shifted"): {"forward": "glu(act)"},
    partial(Gain, "clamped"): {"forward": "glu(act)"},
}


@each(make=FUSED, mode=MODES)
def test_outcome_of_odd_modules(make, mode):
    reference, model = two(make)
    assert operators(replace(model, mode)) == FUSED[make]
    assert_same(model, reference)


@each_model()
def test_gradients_of_samples(name, mode):
    reference, model = (model.float() for model in two(name))
    replace(model, mode)
    x = inputs().float()
    for module in (reference, model):
        call_for_per_sample_grads(module)(x).sum().backward()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(p.grad_sample, q.grad_sample, atol=1e-6)


class Strict(Module):
    def __getattr__(self, name):
        return {**self._parameters, **self._modules}[name]

    def forward(self, x):
        return x


def test_a_module_whose_attributes_raise():
    replace_activations(Sequential(Strict(), GELU()))
