"""replace_activations on models that are changed before or after it: hooks, weight norm, pruning,
other layers. PEFT and other tools are in test_others.py."""

import itertools

import pytest
import torch
from torch.nn import Module
from torch.nn.utils import parametrizations, parametrize, prune

from tests.replace.equivalence.changes import (
    IN_PLACE_OF_ACTIVATION,
    IN_PLACE_OF_LINEAR,
    OF_ANY,
    OF_LINEAR,
)
from tests.replace.equivalence.outcomes import (
    MODELS,
    assert_same,
    each_model,
    replace,
    two,
)

# About backward hooks whose inputs require no gradient, and the old weight_norm
pytestmark = pytest.mark.filterwarnings("ignore")


def assert_same_after(change, name, part, mode, when):
    """``change`` takes the owner and the name of a part. With "after", restore() is tested too."""
    reference, model = two(name)
    if when != "before":
        replacement = replace(model, mode)
        assert_same(model, reference)
    for each in (model, reference):
        torch.default_generator.manual_seed(2)
        change(each, part)
    if when == "before":
        replacement = replace(model, mode)
    assert_same(model, reference)
    if when == "after":
        replacement.restore()
        assert_same(model, reference)


HOOKS = {name: change for name, change in OF_ANY.items() if "hook" in name}
HOOKS["hook with keywords"] = lambda m: m.register_forward_hook(
    lambda m, a, k, y: 2 * y, with_kwargs=True
)


@each_model(when=["before", "after"], hook=HOOKS)
def test_hooks(hook, name, mode, when):
    def change(model, part):
        HOOKS[hook](model.get_submodule(part))

    _, layers, act = MODELS[name]
    for part in (*layers, act, ""):
        assert_same_after(change, name, part, mode, when)


def bias_as_buffer(layer):
    bias = layer.bias.detach()
    del layer.bias
    layer.register_buffer("bias", bias)


def bias_as_tensor(layer):
    bias = layer.bias.detach()
    del layer.bias
    layer.bias = bias


def hidden_weight(layer):
    layer.__dict__["weight"] = 2 * layer.weight.detach()


class Symmetric(Module):
    def forward(self, x):
        return x.abs()


LAYER_CHANGES = {
    "orthogonal": parametrizations.orthogonal,
    "symmetric": lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
    "symmetric bias": lambda m: parametrize.register_parametrization(m, "bias", Symmetric()),
    "frozen": OF_ANY["frozen"],
    "bias as buffer": bias_as_buffer,
    "bias as tensor": bias_as_tensor,
    "hidden weight": hidden_weight,
    **{name: change for name, change in OF_LINEAR.items() if not name.startswith(("un", "remove"))},
    "pruned": lambda m: prune.remove(prune.random_unstructured(m, "weight", 0.3), "weight"),
}


@each_model(when=["before", "after"], kind=LAYER_CHANGES)
def test_layers(kind, name, mode, when):
    def change(model, part):
        LAYER_CHANGES[kind](model.get_submodule(part))

    for part in MODELS[name][1]:
        assert_same_after(change, name, part, mode, when)


@each_model(when=["before", "after"], new=IN_PLACE_OF_LINEAR)
def test_replaced_layers(new, name, mode, when):
    def change(model, part):
        setattr(model, part, IN_PLACE_OF_LINEAR[new](model.get_submodule(part)))

    for part in MODELS[name][1]:
        assert_same_after(change, name, part, mode, when)


NEW_ACTIVATIONS = {**IN_PLACE_OF_ACTIVATION, "function": lambda m: torch.tanh}


@each_model(new=NEW_ACTIVATIONS)
def test_replaced_activation(new, name, mode):
    def change(model, part):
        act = NEW_ACTIVATIONS[new](None)
        delattr(model, part)
        is_function = name == "sequential" and not isinstance(act, Module)
        setattr(model, part, torch.nn.Tanh() if is_function else act)

    assert_same_after(change, name, MODELS[name][2], mode, "after")


STEPS = [
    steps
    for steps in itertools.permutations(["norm", "replace", "remove", "restore"])
    if steps.index("norm") < steps.index("remove")
    and steps.index("replace") < steps.index("restore")
]
NORMS = {
    "hook": ("weight_norm", "remove_weight_norm"),
    "parametrisation": ("parametrised", "unparametrised"),
    "prune": ("prune", "pruned"),
}


@each_model(steps=STEPS, kind=NORMS)
def test_any_order(steps, kind, name, mode):
    norm, remove = (OF_LINEAR[change] for change in NORMS[kind])
    models = two(name)
    for step in steps:
        if step == "replace":
            replacement = replace(models[1], mode)
        elif step == "restore":
            replacement.restore()
        else:
            for model, part in itertools.product(models, MODELS[name][1]):
                (norm if step == "norm" else remove)(model.get_submodule(part))
        assert_same(models[1], models[0])
