"""What replace_activations did to a model, and how far results and memory moved."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gelu_kernels.replace.derived import original


def error(actual, expected):
    """The largest error, relative to the largest element of its tensor.

    Gradients that are zero but for rounding, such as the one of a key's bias, count against the
    rest.
    """
    scales = [float(e.detach().abs().max()) for e in expected]
    least = 1e-4 * max(scales)
    return max(
        float((a - e).detach().abs().max()) / max(scale, least)
        for a, e, scale in zip(actual, expected, scales, strict=True)
    )


def tree(model):
    """Every module, its class, and every plain attribute of it, as objects."""
    own = vars(torch.nn.Module()).keys()
    return {
        name: (type(module), module, {k: v for k, v in vars(module).items() if k not in own})
        for name, module in model.named_modules(remove_duplicate=False)
    }


def changes(replacement):
    """Of activations: the classes of what was held, and what computes it, or is held, now."""
    return {
        change.name: (
            original(type(change.old)),
            "".join(change.new) if isinstance(change.new, tuple) else change.new,
        )
        for change in replacement.changed
        if not isinstance(change.new, tuple) or isinstance(change.old, torch.nn.Module)
    }


def operators(replacement):
    """Of methods: what computes their patterns."""
    return {
        change.name: ", ".join(change.new)
        for change in replacement.changed
        if isinstance(change.new, tuple) and not isinstance(change.old, torch.nn.Module)
    }


def reasons(replacement):
    not_fused = {name: f"not fused: {why}" for name, why in replacement.not_fused.items()}
    return replacement.left_alone | not_fused


class Operators(TorchDispatchMode):
    """The names of what is called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        return function(*args, **(kwargs or {}))


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        super().__init__(self.pack, lambda tensor: tensor)
        self.storages = {}

    def __enter__(self):
        super().__enter__()
        return self

    def pack(self, tensor):
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def total(self):
        return sum(self.storages.values())
