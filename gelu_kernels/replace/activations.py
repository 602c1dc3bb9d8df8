"""Which gate an activation is, which of ours computes it, and why one is left alone."""

import inspect
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import gelu as torch_gelu
from torch.nn.functional import silu as torch_silu

from gelu_kernels import functional, nn
from gelu_kernels.operators import APPROXIMATE
from gelu_kernels.replace.describe import describe, function_of, is_ours

_GATES = {approximate: gate for gate, approximate in APPROXIMATE.items() if approximate}

# By name, so that neither package is imported. Beside torch.nn's and ours these are the classes
# whose formula is known.
_CLASSES = {
    "transformers.activations.GELUActivation": "normal",
    "transformers.activations.NewGELUActivation": "normal_tanh",
    "transformers.activations.GELUTanh": "normal_tanh",
    "transformers.activations.PytorchGELUTanh": "normal_tanh",  # its name before transformers 5
    "transformers.activations.FastGELUActivation": "normal_tanh",  # with 10 digits of sqrt(2/pi)
    "transformers.activations.AccurateGELUActivation": "normal_tanh",
    "transformers.models.bloom.modeling_bloom.BloomGelu": "normal_tanh",  # with 8 digits
    "transformers.activations.QuickGELUActivation": "logistic_1702",
    "transformers.activations.SiLUActivation": "logistic",
    "timm.layers.activations.GELU": "normal",
    "timm.layers.activations.GELUTanh": "normal_tanh",
    "timm.layers.activations.QuickGELU": "logistic_1702",
    "timm.layers.activations.Swish": "logistic",
}


def gate_of(activation: object) -> str | None:
    """The gate that a module or a function is; None if it is none that is known."""
    cls = type(activation)
    function = function_of(activation)
    if cls in (torch.nn.GELU, nn.GELU):
        return _GATES.get(activation.approximate)
    if function is torch_gelu or function is functional.gelu:
        return _GATES.get(getattr(activation, "keywords", {}).get("approximate", "none"))
    if cls in (torch.nn.SiLU, nn.SiLU) or function is torch_silu or function is functional.silu:
        return "logistic"
    return _CLASSES.get(f"{cls.__module__}.{cls.__qualname__}")


def name_of(gate: str) -> str:
    """The name that an activation goes by."""
    return "silu" if gate == "logistic" else "gelu"


def ours_for(old: object, gate: str) -> torch.nn.Module | Callable:
    if isinstance(old, torch.nn.Module):
        new = nn.SiLU() if gate == "logistic" else nn.GELU(APPROXIMATE[gate])
        return new.train(old.training)
    if gate == "logistic":
        return functional.silu
    if gate == "normal":
        return functional.gelu
    return partial(functional.gelu, approximate=APPROXIMATE[gate])


def unknown(value: object, names: tuple[str, ...]) -> str:
    """Why no gate is known for what goes by one of the names; empty for all else."""
    if isinstance(value, torch.nn.Module):
        name = "" if value._modules else getattr(value, "original_name", type(value).__name__)
    else:
        name = "" if isinstance(value, type) else getattr(function_of(value), "__name__", "")
    if is_ours(value) or not _is_one_of(names, name):
        return ""
    return f"{describe(value)} is not known to be one of the gates"


def calls_itself(module: torch.nn.Module, names: tuple[str, ...]) -> str:
    """The function of such a name that the source of ``forward`` uses, if it does."""
    if _is_one_of(names, type(module).__name__) and not module._modules:
        return ""  # left alone by its name already
    forward = getattr(type(module), "forward", None)  # none in TorchScript
    code = getattr(inspect.unwrap(forward), "__code__", None)
    used = code.co_names if code else ()
    return next((n for n in used if _is_one_of(names, n) and not hasattr(module, n)), "")


def intercepted(value: object) -> str:
    """Why a module or a function does more than its class says; empty if it does not."""
    if getattr(value, "inplace", False) or getattr(value, "keywords", {}).get("inplace"):
        return "it overwrites its input"
    if not isinstance(value, torch.nn.Module):
        return ""
    if "forward" in vars(value):
        return "its forward was replaced"
    hooks = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    return "it has hooks" if any(getattr(value, f"_{kind}") for kind in hooks) else ""


def _is_one_of(names: tuple[str, ...], name: str) -> bool:
    return any(n in name.lower() for n in names)
