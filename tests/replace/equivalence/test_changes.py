"""replace_activations on models that are changed before or after it: hooks, weight norm, pruning,
other layers, patches. PEFT and other tools are in test_replace_others.py."""

import itertools

import pytest
import torch
from torch.nn import GELU, Linear, Module, Sequential, SiLU
from torch.nn.utils import parametrizations, parametrize, prune

from tests.replace.equivalence.outcomes import (
    MODELS,
    assert_same,
    every_mode,
    every_model,
    every_time,
    replace,
    two,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")


def assert_same_after(change, name, part, mode, when):
    """``change`` takes the owner and the name of a part."""
    reference, model = two(name)
    if when != "before":
        replacement = replace(model, mode)
        assert_same(model, reference)
    for each in (model, reference):
        torch.manual_seed(2)
        change(each, part)
    if when == "before":
        replacement = replace(model, mode)
    assert_same(model, reference)
    if when == "then restored":
        replacement.restore()
        assert_same(model, reference)


# Hooks, and whatever else changes what one child computes

HOOKS = {
    "forward hook": lambda m: m.register_forward_hook(lambda m, a, y: 2 * y),
    "pre-hook": lambda m: m.register_forward_pre_hook(lambda m, a: (2 * a[0],)),
    "backward hook": lambda m: m.register_full_backward_hook(
        lambda m, given, taken: tuple(g if g is None else 2 * g for g in given)
    ),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(lambda m, g: (2 * g[0],)),
    "hook with keywords": lambda m: m.register_forward_hook(
        lambda m, a, k, y: 2 * y, with_kwargs=True
    ),
}


@every_time
@every_mode
@every_model
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks(hook, name, mode, when):
    def change(model, part):
        HOOKS[hook](model.get_submodule(part))

    _, layers, act = MODELS[name]
    for part in (*layers, act, ""):
        assert_same_after(change, name, part, mode, when)


class Adapted(Module):
    """As LoRA, which keeps the layer and adds to what it computes."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.a = Linear(base.in_features, 2, bias=False).double()
        self.b = Linear(2, base.out_features, bias=False).double()

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Doubled(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Symmetric(Module):
    def forward(self, x):
        return x.abs()


def patched(layer):
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


def new_class(layer):
    layer.__class__ = Doubled


def new_weight(layer):
    layer.weight = torch.nn.Parameter(2 * layer.weight.detach())


def no_bias(layer):
    layer.bias = None


def written(layer):
    with torch.no_grad():
        layer.weight.mul_(2)


LAYER_CHANGES = {
    "weight_norm": torch.nn.utils.weight_norm,
    "parametrised weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "parametrised": lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
    "parametrised bias": lambda m: parametrize.register_parametrization(m, "bias", Symmetric()),
    "prune": lambda m: prune.l1_unstructured(m, "weight", 0.3),
    "pruned": lambda m: prune.remove(prune.random_unstructured(m, "weight", 0.3), "weight"),
    "patched": patched,
    "class": new_class,
    "weight": new_weight,
    "no bias": no_bias,
    "written": written,
    "frozen": lambda m: m.requires_grad_(False),
}


@every_time
@every_mode
@every_model
@pytest.mark.parametrize("kind", LAYER_CHANGES)
def test_layers(kind, name, mode, when):
    def change(model, part):
        LAYER_CHANGES[kind](model.get_submodule(part))

    for part in MODELS[name][1]:
        assert_same_after(change, name, part, mode, when)


NEW_LAYERS = {
    "adapted": Adapted,
    "other": lambda m: Doubled(m.in_features, m.out_features).double(),
    "more": lambda m: Sequential(m, GELU()),
}


@every_time
@every_mode
@every_model
@pytest.mark.parametrize("new", NEW_LAYERS)
def test_replaced_layers(new, name, mode, when):
    def change(model, part):
        setattr(model, part, NEW_LAYERS[new](model.get_submodule(part)))

    for part in MODELS[name][1]:
        assert_same_after(change, name, part, mode, when)


@every_mode
@every_model
@pytest.mark.parametrize(
    "new", [SiLU(), torch.nn.ReLU(True), torch.tanh], ids=["silu", "relu", "tanh"]
)
def test_replaced_activation(new, name, mode):
    def change(model, part):
        delattr(model, part)
        setattr(model, part, new)

    if name == "sequential" and not isinstance(new, Module):
        new = torch.nn.Tanh()
    assert_same_after(change, name, MODELS[name][2], mode, "after")


STEPS = [
    steps
    for steps in itertools.permutations(["norm", "replace", "remove", "restore"])
    if steps.index("norm") < steps.index("remove")
    and steps.index("replace") < steps.index("restore")
]


@every_mode
@every_model
@pytest.mark.parametrize("kind", ["hook", "parametrisation", "prune"])
@pytest.mark.parametrize("steps", STEPS, ids="-".join)
def test_any_order(steps, kind, name, mode):
    norm, remove = {
        "hook": (torch.nn.utils.weight_norm, torch.nn.utils.remove_weight_norm),
        "parametrisation": (
            parametrizations.weight_norm,
            lambda m: parametrize.remove_parametrizations(m, "weight"),
        ),
        "prune": (
            lambda m: prune.l1_unstructured(m, "weight", 0.3),
            lambda m: prune.remove(m, "weight"),
        ),
    }[kind]
    models = two(name)
    for step in steps:
        if step == "replace":
            replacement = replace(models[1], mode)
        elif step == "restore":
            replacement.restore()
        else:
            for model in models:
                for part in MODELS[name][1]:
                    (norm if step == "norm" else remove)(model.get_submodule(part))
        assert_same(models[1], models[0])
