"""Helpers: loops over cases, modules from text, and what replace_activations did to a model."""

import linecache
import textwrap

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gelu_kernels.replace.derived import original


def modules(base: type, bodies: dict[str, str], names: dict) -> dict[str, type]:
    """Subclasses of ``base`` by name, each with a text as the body of its ``forward``.

    ``names`` are the globals of the text. As with a class in a file, its source can be read and its
    objects can be pickled.
    """
    for name, body in bodies.items():
        body = textwrap.indent(textwrap.dedent(body).strip(), 8 * " ")
        source = f"class {name}({base.__name__}):\n    def forward(self, x):\n{body}\n"
        file = f"<{names['__name__']}.{name}>"
        linecache.cache[file] = len(source), None, source.splitlines(True), file
        exec(compile(source, file, "exec"), names)
    return {name: names[name] for name in bodies}


def compute(model, x):
    """The output, and the gradients of x and of the parameters."""
    x = x.clone().requires_grad_()
    y = model(x)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(y.square().sum(), [x, *parameters], allow_unused=True)
    return [y.detach(), *(g for g in gradients if g is not None)]


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
    """Every module, its class and its plain attributes, as objects."""
    own = vars(torch.nn.Module()).keys()
    return {
        name: (type(module), module, {k: v for k, v in vars(module).items() if k not in own})
        for name, module in model.named_modules(remove_duplicate=False)
    }


def changes(replacement):
    """Each activation by name: its class before, and the operator or value in its place now."""
    return {
        change.name: (
            original(type(change.old)),
            "".join(change.new) if isinstance(change.new, tuple) else change.new,
        )
        for change in replacement.changed
        if not isinstance(change.new, tuple) or isinstance(change.old, torch.nn.Module)
    }


def operators(replacement):
    """Each method by name: the operators that compute its patterns."""
    return {
        change.name: ", ".join(change.new)
        for change in replacement.changed
        if isinstance(change.new, tuple) and not isinstance(change.old, torch.nn.Module)
    }


def reasons(replacement):
    not_fused = {name: f"not fused: {why}" for name, why in replacement.not_fused.items()}
    return replacement.left_alone | not_fused


class Operators(TorchDispatchMode):
    """The names of the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function._schema.name)
        return function(*args, **(kwargs or {}))

    @property
    def ours(self):
        return {name for name in self.names if name.startswith("gelu_kernels::")}


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """The size of the storages that are saved for backward."""

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
