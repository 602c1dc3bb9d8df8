"""replace_activations reports gates that it does not find in a child or a plain call: in defaults,
closures, containers, objects, and arithmetic."""

import collections
import dataclasses
import types
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Linear, Module, Sequential, Sigmoid, SiLU

from tests.replace.equivalence.outcomes import replace


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


class Imported(Module):
    def forward(self, x):
        from torch.nn.functional import gelu as g

        return g(x)


class AliasOfModule(Module):
    def forward(self, x):
        f = F
        return f.gelu(x)


class AliasOfFunction(Module):
    def forward(self, x):
        f = F.silu
        return f(x)


TABLE = {"a": F.gelu}


class Functions:
    a = F.gelu


class FromTable(Module):
    def forward(self, x):
        return TABLE["a"](x)


class FromClass(Module):
    def forward(self, x):
        return Functions.a(x)


class OwnTable(Module):
    table = {"a": F.gelu}  # noqa: RUF012

    def forward(self, x):
        return self.table["a"](x)


class OwnList(Module):
    acts = [GELU()]  # noqa: RUF012

    def forward(self, x):
        return self.acts[0](x)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return F.silu(x)


class ByFunction(Module):
    def forward(self, x):
        return Swish.apply(x)


class Callable:
    def __call__(self, x):
        return F.gelu(x)


@dataclasses.dataclass
class Config:
    function: object = F.silu


class Holder(Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return x


class OfSequential(Sequential):
    def features(self, x):
        return F.gelu(self[0](x))


class ByMethod(Module):
    def forward(self, x):
        return x.mul(x.sigmoid())


class InPlace(Module):
    def forward(self, x):
        x = x + 1
        x *= torch.sigmoid(x)
        return x


class InPlaceByMethod(Module):
    def forward(self, x):
        return x.mul_(x.sigmoid())


class ByTanh(Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


class ByNdtr(Module):
    def forward(self, x):
        return x * torch.special.ndtr(x)


class InLambda(Module):
    def forward(self, x):
        return (lambda h: h * torch.sigmoid(h))(x)


class InComprehension(Module):
    def forward(self, x):
        return [h * torch.sigmoid(h) for h in x.chunk(2)]


class BySigmoid(Module):
    def __init__(self):
        super().__init__()
        self.sigmoid = Sigmoid()

    def forward(self, x):
        return x * self.sigmoid(x)


class Excitation(Module):
    """No gate: the sigmoid is of another value."""

    def __init__(self):
        super().__init__()
        self.fc, self.sigmoid, self.x, self.y = Linear(4, 4), Sigmoid(), 1.0, torch.ones(4)

    def forward(self, x):
        y = x * torch.sigmoid(self.fc(x))
        return self.x * torch.sigmoid(self.y) + y, x * self.sigmoid(self.fc(x))


KEPT = {
    "method": GELU().forward, "partial": partial(GELU()), "list": [("a", GELU())],
    "dict": {"a": {"b": F.gelu}}, "set": {F.gelu}, "deque": collections.deque([SiLU()]),
    "SimpleNamespace": types.SimpleNamespace(act=GELU()), "Config": Config(),
}  # fmt: skip
CALLS = {
    Default: "act", KeywordDefault: "act", Imported: "gelu", AliasOfModule: "gelu",
    AliasOfFunction: "silu", FromTable: "TABLE", FromClass: "a", ByFunction: "apply",
    partial(closure, F.gelu): "act", partial(closure, GELU()): "act",
    partial(closure, partial(F.silu)): "act",
}  # fmt: skip
COMPUTES = [
    ByMethod, InPlace, InPlaceByMethod, ByTanh, ByNdtr, InLambda, InComprehension, BySigmoid,
]  # fmt: skip


@pytest.mark.parametrize("kind", KEPT)
def test_containers_and_objects(kind):
    replacement = replace(Holder(KEPT[kind]), "plain")
    assert replacement.left_alone == {"held": f"it is kept in a {kind}"}


@pytest.mark.parametrize("make", CALLS, ids=lambda make: getattr(make, "__name__", "closure"))
def test_calls(make):
    replacement = replace(make(), "plain")
    assert replacement.left_alone == {"forward": f"it calls {CALLS[make]} itself"}
    assert not replacement.changed


@pytest.mark.parametrize("make", COMPUTES)
def test_arithmetic(make):
    replacement = replace(make(), "plain")
    assert replacement.left_alone == {"forward": "it computes a gate that is not known"}
    assert not replacement.changed


@pytest.mark.parametrize("make, name", [(OwnTable, "table"), (OwnList, "acts")])
def test_classes(make, name):
    assert replace(make(), "plain").left_alone == {name: "its class holds it"}


def test_another_method_of_a_sequential():
    replacement = replace(OfSequential(Linear(2, 2)), "both")
    assert replacement.left_alone == {"features": "of a Sequential, only forward is fused"}


def test_an_object_that_is_called():
    why = replace(Holder(Callable()), "plain").left_alone["held"]
    assert "is not known to be one of the gates" in why


def test_no_gate():
    replacement = replace(Sequential(Excitation(), Holder([1, "a", F.relu])), "plain")
    assert not replacement.left_alone and not replacement.changed
