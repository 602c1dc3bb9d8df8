"""Which gate an activation is, which of ours computes it, and why one is left alone."""

import inspect
from collections.abc import Callable
from functools import partial
from types import CellType, CodeType, FunctionType

import torch
import torch.nn.functional as F
from torch.nn.functional import gelu as torch_gelu
from torch.nn.functional import silu as torch_silu

from gelu_kernels import functional, nn
from gelu_kernels.operators import APPROXIMATE
from gelu_kernels.replace.derived import original
from gelu_kernels.replace.describe import describe, function_of, is_ours

GATES = {approximate: gate for gate, approximate in APPROXIMATE.items() if approximate}

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
    if isinstance(activation, torch.nn.Module):
        cls = original(type(activation))
        if cls is nn.GELU or cls is torch.nn.GELU:
            return GATES.get(activation.approximate)
        return gate_of_class(cls)
    function = function_of(activation)
    if function is torch_gelu or function is functional.gelu:
        return GATES.get(getattr(activation, "keywords", {}).get("approximate", "none"))
    if function is torch_silu or function is functional.silu:
        return "logistic"
    return SIGMOID_GATES.get(activation.keywords["alpha"]) if function is swish else None


def gate_of_class(cls: type) -> str | None:
    """None for ``torch.nn.GELU``, whose instances differ."""
    if cls is nn.SiLU or cls is torch.nn.SiLU:
        return "logistic"
    return _CLASSES.get(f"{cls.__module__}.{cls.__qualname__}")


SIGMOID_GATES = {1.702: "logistic_1702", 1.0: "logistic"}  # alpha to gate


def swish(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """An activation that a method computes by arithmetic."""
    return x * torch.sigmoid(x * alpha)


def name_of_class(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def name_of(gate: str) -> str:
    """The name that an activation goes by."""
    return "silu" if gate == "logistic" else "gelu"


def function_for(gate: str) -> Callable:
    """In place of a function that is held as an attribute."""
    if gate in ("logistic", "normal"):
        return functional.silu if gate == "logistic" else functional.gelu
    return partial(functional.gelu, approximate=APPROXIMATE[gate])


_STATE = {*vars(torch.nn.Module())}


def held_by(owner: torch.nn.Module) -> dict[str, object]:
    """Its children, and the attributes that are its own."""
    own = {name: value for name, value in vars(owner).items() if name not in _STATE}
    return {**owner._modules, **own}


def is_compiled(value: object) -> bool:
    return name_of_class(value) == "torch._dynamo.eval_frame.OptimizedModule"


def why_not(value: object, names: tuple[str, ...]) -> str:
    """Why an activation, or what goes by the name of one, is left alone; empty for all else."""
    if gate_of(value):
        return intercepted(value)
    if is_compiled(value) and gate_of(value._orig_mod):
        return "it is compiled"
    if isinstance(value, list | tuple | dict):
        values = value.values() if isinstance(value, dict) else value
        return f"it is kept in a {type(value).__name__}" if any(map(gate_of, values)) else ""
    if isinstance(value, torch.nn.Module):
        name = "" if value._modules else getattr(value, "original_name", type(value).__name__)
    else:
        name = "" if isinstance(value, type) else name_of_function(function_of(value))
    if is_ours(value) or not (is_one_of(names, name) or called_by(value, names)):
        return ""
    return f"{describe(value)} is not known to be one of the gates"


def name_of_function(value: object) -> str:
    name = inspect.getattr_static(value, "__name__", "") if callable(value) else ""
    name = name.__get__(value) if inspect.isgetsetdescriptor(name) else name
    return name if isinstance(name, str) else ""


def called_by(function: object, names: tuple[str, ...]) -> str:
    """The first gate, or function of such a name, that a function calls, or one in its closure, or
    one of its module that it calls."""
    functions = [function] if isinstance(function, FunctionType) else []
    for each in functions:
        used = sorted(names_in(each.__code__))
        found = {name: each.__globals__.get(name) for name in used}
        for name, value in found.items():
            if is_one_of(names, name) or gate_of(value):
                return name
        inner = [v for v in found.values() if getattr(v, "__module__", "") == function.__module__]
        inner += [cell_contents(cell) for cell in each.__closure__ or ()]
        functions += [f for f in inner if isinstance(f, FunctionType) and f not in functions]
    return ""


def cell_contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def names_in(code: CodeType) -> set[str]:
    """Globals and attributes, also of functions within, and what ``getattr`` may be given."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    texts = [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
    looked_up = texts if "getattr" in code.co_names else []
    return {*code.co_names, *looked_up}.union(*map(names_in, inner))


def intercepted(value: object) -> str:
    """Why a module or a function does more than its class says; empty if it does not."""
    own = value.__dict__ if isinstance(value, torch.nn.Module) else getattr(value, "keywords", {})
    if own.get("inplace"):
        return "it overwrites its input"
    return "its forward was replaced" if "forward" in own or is_patched(value) else ""


def is_patched(value: object) -> bool:
    """Whether the formula of an activation is another one than it was at the replacement."""
    is_other = False
    if isinstance(value, torch.nn.Module):
        cls, base = type(value), original(type(value))
        is_other = base is not cls and cls.forward.__wrapped__ is not base.forward
    return is_other or F.gelu is not torch_gelu or F.silu is not torch_silu


def is_one_of(names: tuple[str, ...], name: str) -> bool:
    """ACT2FN, by which transformers names activations, may be any."""
    known = (*names, "act2fn", *(["swish"] if "silu" in names else []))
    return any(n in name.lower() for n in known) and not name.lower().startswith("hard")
