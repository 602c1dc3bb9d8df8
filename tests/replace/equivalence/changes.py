"""What users do to a module: hooks, adapters, other layers, copies. All of it can be pickled."""

import copy
import pickle
from functools import partial

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune


def hook(module, taken, given):
    return 2 * given if isinstance(given, torch.Tensor) else None


def seeing(module, taken, given):
    assert all(isinstance(tensor, torch.Tensor) for tensor in (*taken, given))


def pre_hook(module, taken):
    return (2 * taken[0],)


def backward_hook(module, given, taken):
    return tuple(g if g is None else 2 * g for g in given)


def backward_pre_hook(module, taken):
    return tuple(g if g is None else 2 * g for g in taken)


class Adapted(nn.Module):
    """Like LoRA: keeps the layer and adds to its result."""

    def __init__(self, base):
        super().__init__()
        torch.default_generator.manual_seed(1)
        self.base = base
        self.a = nn.Linear(base.in_features, 2, bias=False).double()
        self.b = nn.Linear(2, base.out_features, bias=False).double()

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class DoubledLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def other_linear(layer):
    torch.default_generator.manual_seed(1)
    return nn.Linear(layer.in_features, layer.out_features).double()


def twice(forward, x):
    return 2 * forward(x)


def patched(module):
    module.forward = partial(twice, module.forward)


def of_other_class(module):
    module.__class__ = DoubledLinear


def without_bias(module):
    module.bias = None


def new_weight(module):
    module.weight = nn.Parameter(2 * module.weight.detach())


def written(module):
    with torch.no_grad():
        module.weight.mul_(2)


def flipped(module):
    module.flag = not module.flag


OF_ANY = {
    "hook": lambda m: m.register_forward_hook(hook),
    "seeing": lambda m: m.register_forward_hook(seeing),
    "pre-hook": lambda m: m.register_forward_pre_hook(pre_hook),
    "backward hook": lambda m: m.register_full_backward_hook(backward_hook),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(backward_pre_hook),
    "frozen": lambda m: m.requires_grad_(False),
    "eval": lambda m: m.eval(),
    "train": lambda m: m.train(),
}
OF_LINEAR = {
    "weight_norm": torch.nn.utils.weight_norm,
    "remove_weight_norm": torch.nn.utils.remove_weight_norm,
    "parametrised": parametrizations.weight_norm,
    "unparametrised": lambda m: parametrize.remove_parametrizations(m, "weight"),
    "prune": lambda m: prune.l1_unstructured(m, "weight", 0.3),
    "pruned": lambda m: prune.remove(m, "weight"),
    "patched": patched,
    "class": of_other_class,
    "no bias": without_bias,
    "weight": new_weight,
    "written": written,
}
IN_PLACE_OF_LINEAR = {
    "adapted": Adapted,
    "other": other_linear,
    "and gelu": lambda m: nn.Sequential(m, nn.GELU()),
}
IN_PLACE_OF_ACTIVATION = {
    "silu": lambda m: nn.SiLU(),
    "relu": lambda m: nn.ReLU(),
    "relu_": lambda m: nn.ReLU(inplace=True),
    "gelu": lambda m: nn.GELU(),
}
OF_MODEL = {
    "flag": flipped,
    "patched": patched,
    "float": lambda m: m.float().double(),
}
COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
}


def random_change(rng, model):
    """The name of a change, and a function that applies it to a model and returns the model."""
    parts = [name for name, _ in model.named_modules()]
    linears = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    gates = [n for n, m in model.named_modules() if isinstance(m, nn.GELU | nn.SiLU)]
    choices = [(OF_ANY, parts, _changed), (OF_MODEL, [""], _changed), (COPIES, [""], _copied)]
    choices += [(OF_LINEAR, linears, _changed), (IN_PLACE_OF_LINEAR, linears, _replaced)]
    choices += [(IN_PLACE_OF_ACTIVATION, gates, _replaced)]
    changes, names, apply = rng.choice([choice for choice in choices if choice[1]])
    change, name = rng.choice([*changes]), rng.choice(names)
    return f"{change} of {name or 'the model'}", partial(apply, changes[change], name)


def _changed(change, name, model):
    change(model.get_submodule(name))
    return model


def _replaced(change, name, model):
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, change(model.get_submodule(name)))
    return model


def _copied(change, name, model):
    return change(model)
