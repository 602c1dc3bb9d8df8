"""What replace_activations leaves alone, the reason that it reports, and the report itself."""

import collections
import dataclasses
import functools
import re
import types
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Linear, Module, Sequential, Sigmoid, SiLU

from gelu_kernels import replace_activations, replace_gelu
from tests.cases import each
from tests.replace.replacements import modules, reasons, tree
from tests.replace.test_linear import Mlp

# Activations that may not be a gate, or do more


class ClippedGELU(Module):
    """Its name says GELU; its forward is not read."""

    def forward(self, x):
        return torch.relu(x)


class OtherSiLU(ClippedGELU):
    pass


def fast_gelu(x):
    return x


class Callable:
    def __call__(self, x):
        return F.gelu(x)


def with_own_forward(module):
    module.forward = module.forward
    return module


UNKNOWN = {
    "other class": (ClippedGELU, ".*ClippedGELU is not known to be one of the gates"),
    "other class of SiLU": (OtherSiLU, ".*OtherSiLU is not known.*"),
    "function": (lambda: fast_gelu, ".*fast_gelu is not known.*"),
    "partial": (lambda: partial(fast_gelu), ".*fast_gelu.* is not known.*"),
    "lambda": (lambda: lambda x: F.gelu(x), ".*lambda.* is not known.*"),
    "object": (Callable, ".* is not known to be one of the gates"),
    "in place": (lambda: SiLU(inplace=True), "it overwrites its input"),
    "in place, function": (lambda: partial(F.silu, inplace=True), "it overwrites its input"),
    "own forward": (lambda: with_own_forward(GELU()), "its forward was replaced"),
    "compiled": (lambda: torch.compile(GELU()), "it is compiled"),
}


# Gates in containers and objects


@dataclasses.dataclass
class Config:
    function: object = F.silu


KEPT = {
    "method": GELU().forward, "partial": partial(GELU()), "list": [("a", GELU())],
    "dict": {"a": {"b": F.gelu}}, "set": {F.gelu}, "deque": collections.deque([SiLU()]),
    "SimpleNamespace": types.SimpleNamespace(act=GELU()), "Config": Config(),
}  # fmt: skip


# Calls of gates that are not followed: the name that is reported, and the body of forward


class Called(Module):
    pass


class Functions:
    a = F.gelu


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return F.silu(x)


def gelu_of(x):
    return F.gelu(x)


ACTIVATION = GELU()
ACT2FN, TABLE = {"gelu": torch.relu}, {"a": F.gelu}

CALLED = {
    "ByHelper": ("gelu_of", "return gelu_of(x)"),
    "InComprehension": ("silu", "return sum(F.silu(part) for part in x.chunk(2, -1))"),
    "InPlace": ("silu", "return F.silu(x, inplace=True)"),
    "ByGetattr": ("gelu", 'return getattr(F, "gelu")(x)'),
    "GlobalModule": ("ACTIVATION", "return ACTIVATION(x)"),
    "FromTable": ("TABLE", 'return TABLE["a"](x)'),
    "ByTheNameOfTable": ("ACT2FN", 'return ACT2FN["gelu"](x)'),
    "FromClass": ("a", "return Functions.a(x)"),
    "ByFunction": ("apply", "return Swish.apply(x)"),
    "Imported": ("gelu", """
        from torch.nn.functional import gelu as g

        return g(x)"""),
    "AliasOfModule": ("gelu", """
        f = F
        return f.gelu(x)"""),
    "AliasOfFunction": ("silu", """
        f = F.silu
        return f(x)"""),
}  # fmt: skip


class Default(Module):
    def forward(self, x, act=F.gelu):
        return act(x)


class KeywordDefault(Module):
    def forward(self, x, *, act=F.silu):
        return act(x)


def closure(act):
    class Closure(Module):
        def forward(self, x):
            return act(x)

    return Closure()


CLOSED_OVER = (F.gelu, GELU(), partial(F.silu))
ARGUMENTS = [Default, KeywordDefault, *(partial(closure, act) for act in CLOSED_OVER)]


# Arithmetic that looks like a gate


class Computed(Module):
    def __init__(self):
        super().__init__()
        self.sigmoid = Sigmoid()


COMPUTED = {
    "ByErf": "return 0.5 * x * (1 + torch.erf(x / 2**0.5))",
    "ByNdtr": "return x * torch.special.ndtr(x)",
    "ByTanh": "return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))",
    "ByMethod": "return x.mul(x.sigmoid())",
    "InPlaceByMethod": "return x.mul_(x.sigmoid())",
    "ByChild": "return x * self.sigmoid(x)",
    "InLambda": "return (lambda h: h * torch.sigmoid(h))(x)",
    "InLoop": "return [h * torch.sigmoid(h) for h in x.chunk(2)]",
    "Augmented": """
        x = x + 1
        x *= torch.sigmoid(x)
        return x""",
    "OtherAlpha": """
        gate, up = x.chunk(2, -1)
        return gate * torch.sigmoid(1.5 * gate) * up""",
}


# Methods and attributes of a class


class CallsTorch(Module):
    def forward(self, x):
        return F.gelu(x)


class Static(Module):
    @staticmethod
    def activate(x):
        return F.gelu(x)

    def forward(self, x):
        return self.activate(x)


class OwnGetattr(CallsTorch):
    def __getattr__(self, name):
        return super().__getattr__(name)

    def forward(self, x):
        return F.gelu(x)


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


class OwnTable(Module):
    table = {"a": F.gelu}  # noqa: RUF012

    def forward(self, x):
        return self.table["a"](x)


class OwnList(Module):
    acts = [GELU()]  # noqa: RUF012

    def forward(self, x):
        return self.acts[0](x)


class OfSequential(Sequential):
    def features(self, x):
        return F.gelu(self[0](x))


def without_source():
    namespace = {"Module": Module, "F": F}
    exec("class Unread(Module):\n    def forward(self, x): return F.gelu(x)", namespace)
    return namespace["Unread"]()


NOT_PLAIN = (
    "it calls gelu itself, and {} is no plain method, or no source is found that is the code "
    "that runs"
)
METHODS = {
    "static": (Static, "activate", NOT_PLAIN.format("activate")),
    "attributes": (OwnGetattr, "forward", NOT_PLAIN.format("forward")),
    "unwrapped": (Unwrapped, "forward", NOT_PLAIN.format("forward")),
    "cached": (Cached, "forward", NOT_PLAIN.format("forward")),
    "cached property": (CachedProperty, "activated", "it calls gelu itself.*"),
    "super": (BySuper, "CallsTorch.forward", "it calls gelu itself.*"),
    "graph": (lambda: torch.fx.symbolic_trace(CallsTorch()), "forward", "it calls gelu itself.*"),
    "no source": (without_source, "forward", NOT_PLAIN.format("forward")),
    "held by class": (HeldByClass, "act", "its class holds it"),
    "table of class": (OwnTable, "table", "its class holds it"),
    "list of class": (OwnList, "acts", "its class holds it"),
    "sequential": (
        lambda: OfSequential(Linear(2, 2)), "features", "of a Sequential, only forward is fused"
    ),
}  # fmt: skip

CALLERS = modules(Called, {name: body for name, (_, body) in CALLED.items()}, globals())
FORMULAS = modules(Computed, COMPUTED, globals())


def left_alone():
    """The maker of a model, the name that is reported, and a pattern for the reason."""
    yield from METHODS.values()
    for make, why in UNKNOWN.values():
        yield lambda make=make: Mlp(make()), "act", why
    for kind, value in KEPT.items():
        yield lambda value=value: Mlp(value), "act", f"it is kept in a {kind}"
    for name, (function, _) in CALLED.items():
        yield CALLERS[name], "forward", f"it calls {function} itself"
    for make in ARGUMENTS:
        yield make, "forward", "it calls act itself"
    for make in FORMULAS.values():
        yield make, "forward", "it computes a gate that is not known"


@each(case=left_alone())
def test_left_alone(case, capsys):
    make, name, why = case
    model = make()
    before = tree(model)
    replacement = replace_activations(model)
    assert not replacement.changed and list(reasons(replacement)) == [name]
    found, _, instead = reasons(replacement)[name].partition("; ")
    assert re.fullmatch(why, found) and instead
    assert reasons(replacement)[name] in capsys.readouterr().out
    assert tree(model) == before


class NoGate(Module):
    """The sigmoid and the factor are of different values."""

    def __init__(self):
        super().__init__()
        self.fc, self.sigmoid, self.x, self.y = Linear(4, 4), Sigmoid(), 1.0, torch.ones(4)
        self.held = [1, "a", F.relu]

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        y = x * torch.sigmoid(self.fc(x)) + value * torch.sigmoid(gate) + torch.erf(gate)
        return self.x * torch.sigmoid(self.y) + y, x * self.sigmoid(self.fc(x))


def test_nothing_to_replace(capsys):
    model = Sequential(Linear(2, 2), torch.nn.ReLU(), NoGate(), torch.nn.Hardswish())
    replacement = replace_activations(model, fuse_bias=True)
    assert not replacement.changed and not replacement.left_alone
    assert capsys.readouterr().out == "replace_activations: nothing to replace\n"


WRONG = [
    (GELU, {}, "'model' must be torch.nn.Module, not type"),
    ([GELU()], {}, "'model' must be torch.nn.Module, not list"),
    (None, {}, "'model' must be torch.nn.Module, not NoneType"),
    *(
        (GELU(), {flag: value}, f"'{flag}' must be bool, not {type(value).__name__}")
        for flag in ("fuse_bias", "recompute", "verbose")
        for value in ("yes", 1, None)
    ),
]


@each(function=[replace_activations, replace_gelu], case=WRONG)
def test_wrong_types(function, case):
    model, options, message = case
    if function is replace_gelu and "recompute" in options:
        pytest.skip("replace_gelu has no recompute")
    with pytest.raises(TypeError) as error:
        function(model, **options)
    assert str(error.value) == f"{function.__name__}(): argument {message}"
    assert type(model) is GELU or not isinstance(model, Module)


@each(function=[replace_activations, replace_gelu])
def test_verbose(function, capsys):
    for model in (Sequential(GELU(), ClippedGELU()), Linear(2, 2)):
        function(model, verbose=False)
        assert capsys.readouterr() == ("", "")
        replacement = function(model, verbose=True)
        assert capsys.readouterr() == (f"{replacement}\n", "")


def test_repr():
    model = Sequential(Linear(2, 2), GELU(), ClippedGELU(), Linear(2, 2))
    replacement = replace_activations(model, recompute=True, verbose=False)
    assert repr(replacement) == (
        "<Replacement of replace_activations: 1 changed, 1 left alone, 1 not recomputed>"
    )
    assert str(replacement).startswith(repr(replacement).partition(" of ")[2].rstrip(">") + "\n")
    replacement = replace_gelu(Sequential(GELU()), verbose=False)
    assert repr(replacement) == "<Replacement of replace_gelu: 1 changed, 0 left alone>"
    replacement.restore()
    assert repr(replacement) == "<Replacement of replace_gelu: nothing to replace>"


def test_report(capsys):
    model = Sequential(Linear(2, 2), GELU("tanh"), ClippedGELU(), Mlp(F.gelu))
    model[3].fc1 = Linear(6, 8, bias=False)
    replacement = replace_activations(model, fuse_bias=True)
    assert capsys.readouterr().out == f"{replacement}\n"
    assert str(replacement).splitlines() == [
        "replace_activations: 3 changed, 1 left alone, 1 not fused",
        "  1: torch.nn.modules.activation.GELU('tanh') -> gate(normal_tanh)",
        "  forward: torch.nn.modules.container.Sequential.forward -> bias_gelu(0, 1)",
        f"  3.forward: {Mlp.__module__}.Mlp.forward -> gate(act)",
        f"  2: left alone: {ClippedGELU.__module__}.ClippedGELU is not known to be one of the "
        "gates; if it is, use gelu_kernels.nn.GELU or SiLU instead",
        "  3.act: not fused: fc1 before it is no plain Linear with a bias",
    ]


class Gated(Mlp):
    def forward(self, x):
        return self.act(self.fc1(x)) * self.fc1(x)


def test_replace_gelu_leaves_all_else():
    model = Sequential(SiLU(), OtherSiLU(), CALLERS["InPlace"](), Gated(SiLU()), Gated(GELU()))
    replacement = replace_gelu(model)
    assert str(replacement).splitlines() == [
        "replace_gelu: 1 changed, 0 left alone",
        "  4.act: torch.nn.modules.activation.GELU('none') -> gate(normal)",
    ]
    assert str(replace_gelu(SiLU())) == "replace_gelu: nothing to replace"
