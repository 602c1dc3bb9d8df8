"""How the report names a module, a function or a method."""

from functools import partial

import torch

from gelu_kernels import functional, nn


def describe(value: object) -> str:
    if isinstance(value, torch.nn.Module):
        name = f"{_package(type(value))}.{type(value).__qualname__}"
        gate = getattr(value, "approximate", None) or getattr(value, "gate", None)
        return f"{name}({gate!r})" if isinstance(gate, str) else name
    if isinstance(value, partial):
        keywords = ", ".join(f"{k}={v!r}" for k, v in value.keywords.items())
        return f"partial({describe(value.func)}, {keywords})"
    if isinstance(value, tuple):  # the operators that compute a method
        return ", ".join(value)
    if value is torch.nn.functional.gelu:  # a builtin, defined in another module
        return "torch.nn.functional.gelu"
    name = getattr(value, "__qualname__", None)
    return f"{_package(value)}.{name}" if name else str(value)


def is_ours(value: object) -> bool:
    named = type(value) if isinstance(value, torch.nn.Module) else function_of(value)
    return _package(named) in (nn.__name__, functional.__name__)


def function_of(value: object) -> object:
    return value.func if isinstance(value, partial) else value


def _package(named: object) -> str:
    """The module it is imported from; for ours the package, not the file in it."""
    module = getattr(named, "__module__", None) or ""
    package = module.rpartition(".")[0]
    return package if package in (nn.__name__, functional.__name__) else module
