"""replace_activations on gated linear units whose factors are clamped, or weighted by row."""

import copy
import pickle
from functools import partial

import torch
import torch.nn.functional as F  # noqa: F401  for the texts
from torch.nn import Module

from gelu_kernels import replace_activations
from tests.cases import each
from tests.replace.replacements import Operators, compute, error, modules, operators
from tests.replace.test_gated import Parts


class Limited(Module):
    def __init__(self, alpha=1.702, limit=0.75):
        super().__init__()
        self.alpha, self.limit = alpha, limit


CLAMPED = {
    "Clamped": """
        gate, up = x[..., ::2], x[..., 1::2]
        gate = gate.clamp(min=None, max=self.limit)
        up = up.clamp(min=-self.limit, max=self.limit)
        glu = gate * torch.sigmoid(gate * self.alpha)
        return (up + 1) * glu""",
    "ByFunctions": """
        gate, up = torch.chunk(x, 2, dim=-1)
        up = torch.clamp(up, -0.75, 0.75)
        return F.silu(torch.clamp(gate, max=0.75)) * (0.5 + up)""",
    "ClampedBelow": """
        gate, up = x.chunk(2, -1)
        return F.silu(gate.clamp(-0.75, 0.75)) * up.clamp(-0.75, 0.75)""",
    "OtherLimits": """
        gate, up = x.chunk(2, -1)
        return F.silu(gate.clamp(max=0.75)) * up.clamp(-0.5, 0.75)""",
    "ClampUsedTwice": """
        gate, up = x.chunk(2, -1)
        up = up.clamp(-0.75, 0.75)
        return F.silu(gate.clamp(max=0.75)) * up + up""",
}
CLAMPED = modules(Limited, CLAMPED, globals())
LIMITED = [CLAMPED["Clamped"], CLAMPED["ByFunctions"]]  # the operator clamps as well
UNKNOWN = partial(CLAMPED["Clamped"], alpha=1.5)  # not a gate of ours
ODD = [partial(CLAMPED["Clamped"], limit=limit) for limit in (0.0, float("inf"))]


@each(make=[*CLAMPED.values(), UNKNOWN, *ODD])
def test_clamped(make, device):
    model = make()
    x = 2 * torch.randn(5, 8, dtype=torch.float64, device=device)
    expected = compute(model, x)
    with replace_activations(model) as replacement:
        assert ("forward" in operators(replacement)) == (make is not UNKNOWN)
        with Operators() as called:
            model(x)
        assert ("aten::clamp" not in called.names) == (make in LIMITED)
        for same in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert error(compute(same, x), expected) < 1e-12
        model.alpha = model.limit = 0.5
        if make is CLAMPED["Clamped"]:
            assert error(compute(model, x), compute(make(0.5, 0.5), x)) < 1e-12


# Units with a weight for each row, and whether the operator takes the weight

WEIGHTED = {
    "ByRow": (True, "return self.act(self.fc1(x)) * self.up(x) * x[..., 0][..., None]"),
    "ByRowFirst": (True, """
        y = self.up(x) * self.act(self.fc1(x))
        return x[..., 0].unsqueeze(-1) * y"""),
    "ByColumn": (False, "return self.act(self.fc1(x)) * self.up(x) * self.fc1.bias"),
    "ByScalar": (False, "return self.act(self.fc1(x)) * self.up(x) * x[..., :1].mean()"),
    "UsedTwice": (None, """
        y = self.act(self.fc1(x)) * self.up(x)
        return y * x[..., :1] + y"""),
}  # fmt: skip
UNITS = modules(Parts, {name: body for name, (_, body) in WEIGHTED.items()}, globals())


@each(name=WEIGHTED, recompute=[False, True])
def test_weighted(name, recompute, device):
    model, (is_row, _) = UNITS[name]().to(device).double(), WEIGHTED[name]
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


ROUTED = torch.randn(2, 5, 8, dtype=torch.bfloat16), torch.rand(5, 1)
NO_ROWS = {
    "scalars": (torch.tensor(2.0), torch.tensor(3.0), torch.tensor([4.0])),
    "another dtype": (*ROUTED[0], ROUTED[1]),  # as a router in float32 gives it
}


@each(arguments=NO_ROWS.values())
def test_a_weight_that_the_operator_does_not_take(arguments):
    class Weighted(Parts):
        def forward(self, x, up, weight):
            return self.act(x) * up * weight

    model = Weighted()
    expected = model(*arguments)
    assert operators(replace_activations(model)) == {"forward": "weighted_glu(act)"}
    y = model(*arguments)
    assert y.dtype == expected.dtype
    # The unit alone rounds a bfloat16 product once, the original twice.
    assert torch.allclose(y, expected, rtol=2**-7 if len(y.shape) else 1e-6)
