"""Small models, the outcome of calling one, which may be an exception, and how outcomes differ."""

from functools import partial

import pytest
import torch
from torch.nn import GELU, Linear, Module, Sequential, SiLU

from gelu_kernels import replace_activations
from tests.cases import each

MODES = {
    "plain": {},
    "fuse_bias": {"fuse_bias": True},
    "recompute": {"recompute": True},
    "both": {"fuse_bias": True, "recompute": True},
}


def replace(model, mode):
    return replace_activations(model, **MODES[mode], verbose=False)


def outcome(model, x, training):
    """The result, and in training the gradients of the input and the parameters; the type of an
    exception in place of whatever raised it."""
    x = x.clone().requires_grad_(training)
    try:
        with torch.set_grad_enabled(training):
            y = model(1 * x)  # not a leaf, as a model may overwrite its input
        found = [y.detach().clone()]
    except Exception as error:
        return [type(error)]
    if not training:
        return found
    wanted = [x, *(p for p in model.parameters() if p.requires_grad)]
    try:
        loss = y.to_dense().square().sum()
        return found + [*torch.autograd.grad(loss, wanted, materialize_grads=True)]
    except Exception as error:
        return found + [type(error)]


def difference(actual, expected, tolerance=1e-9):
    """How two outcomes differ beyond rounding; empty if they do not."""
    kinds = [
        [v if isinstance(v, type) else (v.dtype, v.layout, *v.shape) for v in values]
        for values in (actual, expected)
    ]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} in place of {kinds[1]}"
    pairs = [
        (a.to_dense(), e.to_dense())
        for a, e in zip(actual, expected, strict=True)
        if not isinstance(a, type)
    ]
    scales = [float(e.detach().abs().max()) for _, e in pairs if e.numel()]
    least = 1e-4 * max(scales, default=0)
    for index, (a, e) in enumerate(pairs):
        bound = tolerance * max(float(e.detach().abs().max()) if e.numel() else 0, least)
        if not torch.allclose(a, e, 0, bound, equal_nan=True):
            return f"tensor {index} is off by {float((a - e).detach().abs().max()):.2g}"
    return ""


class Mlp(Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = Linear(6, 8), GELU(), Linear(8, 6)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Gated(Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = Linear(6, 8), Linear(6, 8), Linear(8, 6)
        self.act = SiLU()

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class Chunked(Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = Linear(6, 16), GELU("tanh"), Linear(8, 6)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(up * self.act(gate))


def sequential():
    return Sequential(Linear(6, 8), GELU(), Linear(8, 6))


MODELS = {
    "mlp": (Mlp, ["fc1", "fc2"], "act"),
    "gated": (Gated, ["gate_proj", "up_proj", "down_proj"], "act"),
    "chunked": (Chunked, ["up", "down"], "act"),
    "sequential": (sequential, ["0", "2"], "1"),
}
# The other two modes add little; `make test` covers them with random modules only.
OFTEN = ("fuse_bias", "both")
every_mode = pytest.mark.parametrize(
    "mode",
    [mode if mode in OFTEN else pytest.param(mode, marks=pytest.mark.slow) for mode in MODES],
)


def _adds_little(name, mode, **_):
    return mode not in OFTEN or name not in ("mlp", "gated")


# "recompute" fuses what "both" does in each of these models.
each_model = partial(each, _adds_little, name=MODELS, mode=["plain", *OFTEN])


def two(make):
    """Two equal models, from a function or a name in MODELS."""
    make = MODELS[make][0] if make in MODELS else make
    models = []
    for _ in range(2):
        torch.default_generator.manual_seed(0)  # torch.manual_seed takes 3 ms for absent devices
        models.append(make().double())
    return models


def inputs():
    return torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def assert_same(model, reference):
    for training in (False, True):
        expected = outcome(reference, inputs(), training)
        assert not difference(outcome(model, inputs(), training), expected)
