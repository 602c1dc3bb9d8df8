"""replace_activations on gated linear units: products that one operator computes, and products that
are not fused."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Linear, Module, SiLU

from gelu_kernels import replace_activations
from tests.cases import each
from tests.replace.replacements import (
    Operators,
    compute,
    error,
    modules,
    operators,
    tree,
)


class Parts(Module):
    """A gate and an up projection, an activation, and the linear layer after them."""

    def __init__(self, activation=None):
        super().__init__()
        self.fc1, self.up, self.fc2 = Linear(6, 8), Linear(6, 8), Linear(8, 6)
        self.act = SiLU() if activation is None else activation


GATED = {
    "Gated": "return self.act(self.fc1(x)) * self.up(x)",
    "UpFirst": "return self.up(x) * self.act(self.fc1(x))",
    "ByName": """
        if x is None:
            return x
        h = self.act(self.fc1(x))
        up = self.up(x)
        return (h * up).clone()""",
    "ByOneName": """
        h = torch.cat([self.fc1(x), self.up(x)], -1)
        h, up = h.chunk(2, dim=-1)
        h = self.act(h)
        h = h * up
        for _ in range(2):
            h = h + 1
        return h""",
    "Thrice": """
        x = torch.cat([self.fc1(x), self.up(x)], -1)
        gate, up = x.chunk(2, dim=-1)
        y = self.act(gate) * up * 2
        return y + self.act(up) * self.act(gate)""",
    "ByFunction": "return torch.mul(F.silu(self.fc1(x)), self.up(x))",
    "InLoop": """
        y = 0
        for _ in range(2):
            with torch.enable_grad():
                y = y + self.act(self.fc1(x)) * self.up(x)
        return y""",
    "EvenAndOdd": """
        both = self.fc1(x)
        return self.act(both[..., ::2]) * both[..., 1::2]""",
    "BothGated": "return self.act(self.fc1(x)) * self.act(self.up(x))",
    "Arithmetic": """
        h = self.fc1(x)
        return h * torch.sigmoid(h) * self.up(x)""",
}


class ByMethod(Parts):
    def forward(self, x):
        return self.product(self.fc1(x), self.up(x))

    def product(self, x, up):
        return self.act(x) * up


class Private(Parts):
    def __product(self, x, up):
        return self.act(x) * up

    def forward(self, x):
        return self.__product(self.fc1(x), self.up(x))


class Decorated(Parts):
    @torch.enable_grad()
    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)


METHODS = {"ByMethod": "product", "Private": "_Private__product"}
GATED = modules(Parts, GATED, globals())
GATED |= {cls.__name__: cls for cls in (ByMethod, Private, Decorated)}

# Similar products: only their results are tested, not whether they are fused.
LIMIT, NUMBERS = [0.5], torch.ones(8)
ALIKE = {
    "LocalImport": """
        from torch import tanh as sigmoid

        h = self.fc1(x)
        return h * sigmoid(h) * self.up(x)""",
    "IntoBuffer": """
        h = self.fc1(x).detach()
        buffer = torch.empty_like(h)
        y = h * torch.sigmoid(h, out=buffer) * self.up(x)
        return y + buffer""",
    "SigmoidFirst": """
        h = self.fc1(x)
        s = torch.sigmoid(h)
        z = h
        return z * s * self.up(x)""",
    "ByKeyword": """
        h, limit = self.fc1(x), LIMIT
        h = torch.clamp(input=h, max=limit[0])
        y = h * torch.sigmoid(input=h) * torch.sigmoid(h * limit[0])
        return y + h * torch.sigmoid(h * NUMBERS)""",
    "Broadcast": "return self.act(self.fc1(x)) * self.up(x)[..., :1]",
    "BroadcastAndShifted": "return self.act(self.fc1(x)) * (self.up(x)[..., :1] + 0.5)",
    "BroadcastAndClamped": """
        up = self.up(x)[..., :1].clamp(-0.5, 0.5)
        return self.act(self.fc1(x).clamp(max=0.5)) * up""",
    "ZeroLimit": "return self.act(self.fc1(x).clamp(max=0.0)) * (self.up(x).clamp(-0.0, 0.0) + 1)",
    "ShiftedUsedTwice": """
        up = self.up(x) + 0.5
        return self.act(self.fc1(x)) * up + up""",
    "Scaled": "return 2.0 * self.act(self.fc1(x)) + self.up(x)",
    "Promoted": "return self.act(self.fc1(x).float()) * self.up(x)",
    "OtherStrides": """
        up = self.up(x).transpose(0, 1).contiguous().transpose(0, 1)
        return (up * self.act(self.fc1(x))).transpose(0, 1).view(-1)""",
}
PRODUCTS = GATED | modules(Parts, ALIKE, globals())
ACTIVATIONS = {"silu": SiLU, "tanh": partial(GELU, "tanh"), "function": lambda: F.silu}


def bound_of(name):
    return 1e-6 if name == "Promoted" else 1e-12


@each(name=PRODUCTS, activation=ACTIVATIONS)
def test_gated(name, activation, device):
    model = PRODUCTS[name](ACTIVATIONS[activation]()).to(device).double()
    x = torch.randn(5, 7, 6, dtype=torch.float64, device=device)
    expected, before = compute(model, x), tree(model)
    replacement = replace_activations(model)
    if name in GATED:
        assert operators(replacement)[METHODS.get(name, "forward")].startswith("glu(")
    assert error(compute(model, x), expected) < bound_of(name)
    assert not replace_activations(model).changed
    replacement.restore()
    assert tree(model) == before


@each(name=GATED)
def test_gated_is_one_operator(name):
    model = GATED[name]().eval()
    replace_activations(model)
    with torch.no_grad(), Operators() as called:
        model(torch.randn(3, 6))
    alone = {"gelu_kernels::gate_forward"} if name in ("Thrice", "BothGated") else set()
    assert called.ours == {"gelu_kernels::glu_forward"} | alone
    assert not called.names & {"aten::silu", "aten::sigmoid"}


COMPILED = ("Gated", "ByOneName", "Private", "Decorated", "IntoBuffer", "Promoted")


@each(lambda name: name not in COMPILED, name=PRODUCTS)
def test_gated_compiles(name):
    model = PRODUCTS[name]().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = compute(model, x)
    replace_activations(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error(compute(compiled, x), expected) < bound_of(name)


@pytest.mark.parametrize("strict", [False, True])
def test_gated_exports(strict):
    model = GATED["UpFirst"]().double()
    x = torch.randn(3, 6, dtype=torch.float64)
    expected = model(x)
    replace_activations(model)
    program = torch.export.export(model, (x,), strict=strict)
    assert "glu" in str(program.graph)
    assert error([program.module()(x)], [expected]) < 1e-12


# Products that are not fused, with the reason that is reported

ELSEWHERE, WRITES = "its result is used elsewhere", "something that may write stands in between"
NOT_GATED = {
    "Added": (ELSEWHERE, """
        h = self.act(self.fc1(x))
        return self.fc2(h) + self.fc2(h * self.up(x))"""),
    "Read": (ELSEWHERE, """
        h = self.act(self.fc1(x))
        return h * self.up(x) + h"""),
    "ReadByNextStep": (ELSEWHERE, """
        y = 0
        for i in range(2):
            y = y + (h if i else 0)
            h = self.act(self.fc1(x))
            y = y + h * self.up(x)
        return y"""),
    "ReadAfterBreak": (ELSEWHERE, """
        for i in range(3):
            h = self.act(self.fc1(x))
            y = h * self.up(x)
            if i:
                break
            h = x
        return y + h"""),
    "ReadAfterError": (ELSEWHERE, """
        try:
            h = self.act(self.fc1(x))
            y = h * self.up(x)
            h = y.view(7, 7)
        except RuntimeError:
            return y + h
        return h"""),
    "ReadWithin": ("", """
        h = self.act(self.fc1(x))
        return h * self.up(x) + (lambda: h)()"""),
    "ReadByName": ("", """
        h = self.act(self.fc1(x))
        return h * self.up(x) + locals()["h"]"""),
    "Augmented": ("", """
        h = self.act(self.fc1(x))
        h *= self.up(x)
        return h"""),
    "Written": (WRITES, """
        x = self.fc1(x)
        h = self.act(x)
        x.mul_(2)
        return h * x"""),
    "WrittenIndex": (WRITES, """
        x = self.fc1(x)
        h = self.act(x)
        x[0] = 1
        return h * x"""),
    "WrittenAtOnce": (WRITES, """
        x = self.fc1(x)
        return self.act(x) * x.add_(1)"""),
    "WrittenByChild": (WRITES, """
        x = self.fc1(x)
        return self.act(x) * self.hardsigmoid_(x)"""),
    "WrittenByProperty": (WRITES, "return self.act(self.fc1(x)) * (self.up(x) * self.scale)"),
    "Power": ("something stands between it and the product", """
        return self.act(self.fc1(x)) ** 2 * self.up(x)"""),
    "Passed": ("", "return torch.func.vmap(self.act)(self.fc1(x)) * self.up(x)"),
    "Reassigned": ("", """
        self.act = torch.nn.Identity()
        return self.act(self.fc1(x)) * self.up(x)"""),
    "ClampedLater": ("clamp stands between it and the product", """
        return self.act(self.fc1(x)).clamp(max=0.5) * self.up(x)"""),
    "Prepared": ("", """
        x = self.fc1(x)
        self.prepare()
        return self.act(x) * self.up(x)"""),
    "AddedChild": ("", """
        x = self.fc1(x)
        self.add_writing_child()
        return self.act(x) * self.up(x)"""),
    "UsesItsClass": ("", "return super(self.__class__, self).forward(x)"),
}  # fmt: skip


class Writing(Parts):
    def __init__(self):
        super().__init__()
        self.hardsigmoid_ = torch.nn.Hardsigmoid(inplace=True)

    @property
    def scale(self):
        self.fc1.weight.data.mul_(1.5)
        return 2.0

    def prepare(self):
        self.up = torch.nn.Hardsigmoid(inplace=True)

    def add_writing_child(self):
        self.add_module("up", torch.nn.Hardsigmoid(inplace=True))

    def forward(self, x):
        return self.act(self.fc1(x)) * self.up(x)


STAY = modules(Writing, {name: body for name, (_, body) in NOT_GATED.items()}, globals())


@each(name=NOT_GATED, recompute=[False, True])
def test_not_gated(name, recompute):
    model = STAY[name]().double()
    plain = copy.deepcopy(model)
    x = torch.randn(4, 6, dtype=torch.float64)
    replacement = replace_activations(model, recompute=recompute)
    assert not operators(replacement)
    assert NOT_GATED[name][0] in replacement.not_fused.get("act", "")
    with torch.no_grad():
        assert error([model(x)], [plain(x)]) < 1e-12
