"""Which gate an activation computes, and whether it does nothing else."""

import torch
import torch.nn.functional as F
from torch.compiler import is_dynamo_compiling

from gelu_kernels import functional, nn
from gelu_kernels.operators.table import APPROXIMATE
from gelu_kernels.plain import as_written
from gelu_kernels.replace import reasons
from gelu_kernels.replace.derived import original
from gelu_kernels.replace.describe import function_of

torch_gelu = torch._C._nn.gelu
torch_silu = as_written(F.silu, F.__name__)

GATES = {approximate: gate for gate, approximate in APPROXIMATE.items() if approximate}

# The known classes besides torch.nn's and ours. By name, so neither package needs to be imported.
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
    """The gate that a module or a function computes; None if it is not a known one."""
    if isinstance(activation, torch.nn.Module):
        cls = original(type(activation))
        if cls is nn.GELU or cls is torch.nn.GELU:
            return GATES.get(activation.approximate)
        return gate_of_class(cls)
    function = function_of(activation)
    if function is torch_gelu or function is functional.gelu:
        return GATES.get(getattr(activation, "keywords", {}).get("approximate", "none"))
    if function is not None and (function is torch_silu or function is functional.silu):
        return "logistic"
    return SIGMOID_GATES.get(activation.keywords["alpha"]) if function is swish else None


def gate_of_class(cls: type) -> str | None:
    """None for ``torch.nn.GELU``, where it depends on the instance."""
    if cls is nn.SiLU or cls is torch.nn.SiLU:
        return "logistic"
    return _CLASSES.get(f"{cls.__module__}.{cls.__qualname__}")


SIGMOID_GATES = {1.702: "logistic_1702", 1.0: "logistic"}  # by alpha


def swish(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """Stands for an activation that a method writes out as arithmetic."""
    return x * torch.sigmoid(x * alpha)


def name_of_class(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def name_of(gate: str) -> str:
    """The name in :attr:`Options.names` that covers this gate."""
    return "silu" if gate == "logistic" else "gelu"


def intercepted(value: object) -> str:
    """Why a module or a function does not compute what its class says; empty if it does."""
    own = value.__dict__ if isinstance(value, torch.nn.Module) else getattr(value, "keywords", {})
    if own.get("inplace"):
        return reasons.OVERWRITES
    act = own.get("act")  # in transformers: the function or own method that forward calls
    is_own = act is None or getattr(act, "__self__", None) is value
    if not is_own and gate_of(act) != gate_of_class(original(type(value))):
        return reasons.ACT_REPLACED
    return reasons.FORWARD_REPLACED if "forward" in own or is_patched(value) else ""


def is_patched(value: object) -> bool:
    """Whether an activation's forward, ``F.gelu`` or ``F.silu`` has been patched."""
    is_other = False
    if isinstance(value, torch.nn.Module):
        cls, base = type(value), original(type(value))
        if base is not cls:
            is_other = getattr(cls.forward, "__wrapped__", None) is not base.forward
        elif not is_dynamo_compiling():
            is_other = as_written(cls.forward, cls.__module__) is None
    return is_other or F.gelu is not torch_gelu or F.silu is not torch_silu
