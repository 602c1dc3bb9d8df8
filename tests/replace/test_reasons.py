"""Every reason in a report, and that a model rewritten as it says computes by our operators."""

import types
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, LayerNorm, Linear, Module, Sequential, SiLU

import gelu_kernels
from gelu_kernels import functional, nn, replace_activations
from gelu_kernels.replace import reasons
from tests.cases import each
from tests.replace.replacements import Operators, modules

FUSED, RECOMPUTED = {"fuse_bias": True}, {"recompute": True}
USE = "use gelu_kernels.functional.gelu or silu instead"
USE_GELU = "use gelu_kernels.functional.gelu instead"
USE_FUSED = "use gelu_kernels.functional.glu or bias_gelu instead"
USE_RECOMPUTED = "use gelu_kernels.functional.gate_linear or glu_linear instead"
USE_GLU = "use gelu_kernels.functional.glu instead"
ATTRIBUTE = "make it an attribute of the module"
UNREAD = "{} is no plain method, or no source is found that is the code that runs"


class Parts(Module):
    def __init__(self, act=None):
        super().__init__()
        self.fc1, self.up, self.fc2 = Linear(8, 8), Linear(8, 8), Linear(8, 8)
        if act is not None:
            self.act = act


# A body of forward, by class.
BODIES = {
    "Held": "return self.fc2(self.act(self.fc1(x)))",
    "Plain": "return self.act(x)",
    "Passed": """
        act = self.act
        return act(self.fc1(x))""",
    "FromList": "return self.acts[0](x)",
    "Inner": "return self.inner.act(x)",
    "Features": "return self.inner.features(x)",
    "Function": "return F.gelu(x)",
    "Ours": "return functional.gelu(x)",
    "Erf": "return 0.5 * x * (1 + torch.erf(x / 2**0.5))",
    "OursHeld": """
        weight, bias = self.fc2.weight, self.fc2.bias
        return functional.gate_linear(self.fc1(x), weight, bias, gate="normal")""",
    "Parted": "return sum(F.gelu(part) for part in x.chunk(2, -1))",
    "OursParted": "return sum(functional.gelu(part) for part in x.chunk(2, -1))",
    "PartedAndHeld": "return self.act(sum(F.gelu(part) for part in x.chunk(2, -1)))",
    "OursPartedAndHeld": """
        return self.act(sum(functional.gelu(part) for part in x.chunk(2, -1)))""",
    "Table": 'return TABLE["a"](x)',
    "Gated": "return self.act(self.fc1(x)) * self.up(x)",
    "OursGated": "return functional.geglu(self.fc1(x), self.up(x))",
    "Written": """
        h = self.act(x)
        x = x + 1
        print(end="")
        return h * self.up(x)""",
    "OursWritten": """
        print(end="")
        return functional.geglu(x, self.up(x + 1))""",
    "ReadAgain": """
        h = self.act(x)
        return h * self.up(x) + h""",
    "CalledAgain": "return self.act(x) * self.up(x) + self.act(x)",
    "Viewed": "return self.act(self.fc1(x)).view(4, 2, 4) * self.up(x).view(4, 2, 4)",
    "ViewedBefore": "return self.act(self.fc1(x).view(4, 2, 4)) * self.up(x).view(4, 2, 4)",
    "Clamped": "return self.act(self.fc1(x)).clamp(max=1.0) * self.up(x)",
    "Apart": """
        for layer in (self.fc1, self.act, self.fc2):
            x = layer(x)
        return x""",
}  # fmt: skip
TABLE = {"a": F.gelu}
MADE = modules(Parts, BODIES, globals())
Held, Plain = MADE["Held"], MADE["Plain"]


class LikeGELU(Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


class HeldByClass(Plain):
    act = staticmethod(F.gelu)


class Static(Parts):
    @staticmethod
    def forward(x):
        return F.gelu(x)


class OursStatic(Parts):
    @staticmethod
    def forward(x):
        return gelu_kernels.functional.gelu(x)


class BySuper(MADE["Function"]):
    def forward(self, x):
        return super().forward(x)


class OursBySuper(MADE["Ours"]):
    def forward(self, x):
        return super().forward(x)


class OfSequential(Sequential):
    def features(self, x):
        return F.gelu(self[0](x))


class OursOfSequential(Sequential):
    def features(self, x):
        return functional.gelu(self[0](x))


class Last(type):
    def __new__(cls, name, bases, namespace):
        if bases and bases[0] is not Parts:
            raise TypeError("it is the last")
        return super().__new__(cls, name, bases, namespace)


class Final(Parts, metaclass=Last):
    forward = MADE["Gated"].forward


class OursFinal(Parts, metaclass=Last):
    forward = MADE["OursGated"].forward


def without_source(cls, *arguments):
    """A module whose class has the code of another, from a file that does not exist."""
    code = MADE[cls].forward.__code__.replace(co_filename="<no file>")
    forward = types.FunctionType(code, globals(), "forward")
    return type("WithoutSource", (Parts,), {"forward": forward})(*arguments)


def outer(cls, inner):
    model = MADE[cls]()
    model.inner = inner
    return model


def inner(act):
    model = Module()
    model.act = act
    return model


def with_list(act):
    model = MADE["FromList"]()
    model.acts = [act]
    return model


def with_act(act):
    module = pytest.importorskip("transformers.activations").GELUActivation()
    module.act = act or module.act
    return Plain(module)


def with_forward(is_own):
    act = GELU()
    if is_own:
        act.forward = act.forward
    return Plain(act)


def parametrized(cls, *arguments):
    model = MADE[cls](*arguments)
    model.scale = torch.nn.Parameter(torch.ones(1))
    torch.nn.utils.parametrize.register_parametrization(model, "scale", torch.nn.Identity())
    return model


@dataclass
class Case:
    """``name`` is that of the reason in reasons.py. ``after`` is ``before`` with the remedy."""

    name: str
    why: str
    instead: str
    before: object
    after: object = None
    options: dict = field(default_factory=dict)


APART, SEQUENCE = MADE["Apart"], partial(Sequential, Linear(8, 8))
ONE_METHOD = "if one does, write {} in one method"
LIKE = f"{LikeGELU.__module__}.LikeGELU is not known to be one of the gates"
CASES = [
    Case("OVERWRITES", "it overwrites its input", "construct it with inplace=False",
         lambda: Held(SiLU(inplace=True)), lambda: Held(SiLU(inplace=False))),
    Case("OVERWRITES", "it overwrites its input", "construct it with inplace=False",
         lambda: Held(partial(F.silu, inplace=True)), lambda: Held(partial(F.silu, inplace=False))),
    Case("ACT_REPLACED", "its act was replaced", "undo that first",
         lambda: with_act(gelu), lambda: with_act(None)),
    Case("FORWARD_REPLACED", "its forward was replaced", "undo that first",
         lambda: with_forward(True), lambda: with_forward(False)),
    Case("COMPILED", "it is compiled", "compile it afterwards",
         lambda: Plain(torch.compile(GELU(), backend="eager")), lambda: Plain(GELU())),
    Case("HELD_BY_CLASS", "its class holds it", ATTRIBUTE, HeldByClass, lambda: Plain(F.gelu)),
    Case("NOT_CALLED", "no method calls it", USE,
         lambda: outer("Inner", inner(F.gelu)), lambda: outer("Inner", inner(functional.gelu))),
    Case("kept_in", "it is kept in a list", ATTRIBUTE,
         lambda: with_list(GELU()), lambda: Plain(GELU())),
    Case("kept_in", "it is kept in a SimpleNamespace", ATTRIBUTE,
         lambda: outer("Inner", types.SimpleNamespace(act=F.gelu)), lambda: Plain(F.gelu)),
    Case("not_known", LIKE, "if it is, use gelu_kernels.nn.GELU or SiLU instead",
         lambda: Plain(LikeGELU()), lambda: Plain(nn.GELU())),
    Case("not_only_called", "forward does not only call it with a tensor", USE,
         lambda: MADE["Passed"](F.gelu), lambda: MADE["Passed"](functional.gelu)),
    Case("NOT_KNOWN_FORMULA", "it computes a gate that is not known",
         f"if it is GELU or SiLU, {USE}", MADE["Erf"], MADE["Ours"]),
    Case("ONLY_FORWARD", "of a Sequential, only forward is fused", USE,
         lambda: outer("Features", OfSequential(Linear(8, 8))),
         lambda: outer("Features", OursOfSequential(Linear(8, 8)))),
    Case("calls", "it calls gelu itself", USE_GELU, MADE["Parted"], MADE["OursParted"]),
    Case("calls", "it calls gelu itself", USE_GELU,
         lambda: MADE["PartedAndHeld"](GELU()), lambda: MADE["OursPartedAndHeld"](GELU())),
    Case("calls", "it calls TABLE itself", USE, MADE["Table"], MADE["Ours"]),
    Case("unread", f"it calls gelu itself, and {UNREAD.format('forward')}", USE_GELU,
         Static, OursStatic),
    Case("unread", "it calls gelu itself, and Function.forward is reached by super()", USE_GELU,
         BySuper, OursBySuper),
    Case("left_alone", UNREAD.format("forward"), USE,
         lambda: without_source("Plain", F.gelu), lambda: without_source("Ours")),
    Case("not_fused", UNREAD.format("forward"), USE_FUSED,
         lambda: without_source("Gated", GELU()), lambda: without_source("OursGated")),
    Case("not_recomputed", UNREAD.format("forward"), USE_RECOMPUTED,
         lambda: without_source("Held", GELU()),
         lambda: without_source("OursHeld"), RECOMPUTED),
    Case("PARAMETRIZED", "its module is parametrized", USE_FUSED,
         lambda: parametrized("Gated", GELU()), lambda: parametrized("OursGated")),
    Case("not_derived", "no class can be derived from Final: it is the last", USE_GLU,
         lambda: Final(GELU()), OursFinal),
    Case("may_write", "something that may write stands in between", USE_GLU,
         lambda: MADE["Written"](GELU()), MADE["OursWritten"]),
    Case("USED_ELSEWHERE", "its result is used elsewhere too", "call it again there",
         lambda: MADE["ReadAgain"](GELU()), lambda: MADE["CalledAgain"](GELU())),
    Case("stands_between", "view stands between it and the product",
         "call it before the activation",
         lambda: MADE["Viewed"](GELU()), lambda: MADE["ViewedBefore"](GELU())),
    Case("stands_between", "clamp stands between it and the product", "",
         lambda: MADE["Clamped"](GELU())),
    Case("NO_LINEAR_BEFORE", "no Linear is seen to come before it",
         ONE_METHOD.format("act(linear(x))"), lambda: APART(GELU()), lambda: Held(GELU()), FUSED),
    Case("NO_LINEAR_AFTER", "no Linear is seen to come after it",
         ONE_METHOD.format("linear(act(x))"), lambda: APART(GELU()), lambda: Held(GELU()),
         RECOMPUTED),
    Case("not_plain_before", "1 before it is no plain Linear with a bias", "",
         lambda: SEQUENCE(LayerNorm(8), GELU()), None, FUSED),
    Case("not_plain_after", "2 after it is no plain Linear", "",
         lambda: SEQUENCE(GELU(), LayerNorm(8)), None, RECOMPUTED),
]  # fmt: skip


def gelu(x):
    return F.gelu(x)


def reported(replacement):
    lists = replacement.left_alone, replacement.not_fused, replacement.not_recomputed
    return [why for found in lists for why in found.values()]


@each(case=CASES)
def test_a_reason_and_its_remedy(case):
    before = case.before()
    replacement = replace_activations(before, **case.options, verbose=False)
    text = f"{case.why}; {case.instead}" if case.instead else case.why
    assert text in reported(replacement)
    if not case.after:
        return
    after, x = case.after(), torch.randn(4, 8)
    after.load_state_dict(before.state_dict())
    expected = before(x)
    assert not reported(replace_activations(after, **case.options, verbose=False))
    with Operators() as called:
        assert torch.allclose(after(x), expected, atol=1e-6)
    assert called.ours


def test_every_reason_is_a_case():
    assert {case.name for case in CASES} == {n for n in vars(reasons) if not n.startswith("_")}


def test_compiled_afterwards():
    model, x = Plain(GELU()), torch.randn(4, 8)
    replace_activations(model, verbose=False)
    model.act = torch.compile(model.act, backend="eager")
    with Operators() as called:
        assert torch.allclose(model(x), F.gelu(x), atol=1e-6)
    assert called.ours


# Gates that are called where a name of ours is read too, or is bound to another function

OTHERS = {
    "Both": "return sum(F.gelu(functional.gelu(part)) for part in x.chunk(2, -1))",
    "Argument": "return (lambda functional: functional.gelu(x))(F)",
    "Imported": """
        from torch.nn import functional

        return sum(functional.gelu(part) for part in x.chunk(2, -1))""",
    "ByGetattr": 'return functional.gelu(getattr(F, "gelu")(x))',
}
MADE |= modules(Parts, OTHERS, globals())


@each(name=OTHERS, make=[lambda name: MADE[name](), without_source])
def test_a_gate_beside_ours_is_listed(name, make):
    replacement = replace_activations(make(name), verbose=False)
    assert [*replacement.left_alone] == ["forward"] and not replacement.changed


def test_not_recomputed_only_if_asked_for():
    model = without_source("Held", GELU())
    assert not replace_activations(model, verbose=False).not_recomputed
    assert replace_activations(model, recompute=True, verbose=False).not_recomputed
