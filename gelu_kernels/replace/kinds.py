"""The kinds of attributes that fusing depends on. A fused method checks them at each call, so a
check takes a microsecond at most."""

from collections.abc import Callable

from torch.nn import Module, Sigmoid
from torch.nn.modules.module import _has_any_global_hook

from gelu_kernels import functional
from gelu_kernels.plain import is_plain_linear, is_plain_module, is_plain_tensor
from gelu_kernels.replace.activations import gate_of, intercepted, name_of_class
from gelu_kernels.replace.describe import function_of

_CONV1D = "transformers.pytorch_utils.Conv1D"

# These do not write to their inputs, and do not change autograd's modes.
_HARMLESS = {
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.dropout.Dropout",
    "torch.nn.modules.container.ModuleDict",
    "torch.nn.modules.container.ParameterDict",
    "peft.tuners.lora.layer.Linear",
    "transformers.models.gemma4.modeling_gemma4.Gemma4ClippableLinear",
    "peft.tuners._buffer_dict.BufferDict",
    _CONV1D,
}
_HARMLESS_HOOKS = ("torch.distributed.", "transformers.integrations.tensor_parallel")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def value_of(owner: Module, name: str) -> object:
    """An attribute that the module itself holds; ``name`` may be dotted."""
    first, *rest = name.split(".")
    own = owner.__dict__
    for held in (own["_modules"], own, own["_parameters"], own["_buffers"]):
        if first in held:
            value = held[first]
            for part in rest:
                value = getattr(value, part, None)
            return value
    return None


def is_gate(value: object) -> bool:
    """An activation that computes a gate and nothing else, and saves no code of its derivative."""
    is_module = isinstance(value, Module)
    return _is_activation(value) and not (is_module and value.__dict__.get("save"))


def is_gelu(value: object) -> bool:
    """One of GELU's formulas; it may save a code."""
    return _is_activation(value) and gate_of(value) != "logistic"


def _is_activation(value: object) -> bool:
    is_hooked = isinstance(value, Module) and not is_plain_module(value)
    return not is_hooked and gate_of(value) is not None and not intercepted(value)


def is_function(value: object) -> bool:
    """An activation that is a function, so it has no hooks."""
    function = function_of(value)
    is_other = function is not functional.gelu and function is not functional.silu
    return not isinstance(value, Module) and is_other and is_gate(value)


def is_linear_with_bias(value: object) -> bool:
    return is_plain_linear(value) and value.__dict__["_parameters"]["bias"] is not None


def is_conv1d(value: object) -> bool:
    """Transformers' linear layer with a transposed weight."""
    return (
        name_of_class(value) == _CONV1D
        and is_plain_module(value)
        and is_plain_tensor(value.weight)
        and is_plain_tensor(value.bias)
    )


def is_harmless(value: object) -> bool:
    """A module that does not write to its inputs."""
    return is_plain_linear(value) or _is_harmless(value)


def _is_harmless(value: object) -> bool:
    if name_of_class(value) not in _HARMLESS or _has_any_global_hook():
        return False
    own = vars(value)
    hooks = [hook for kind in _HOOKS for hook in own[kind].values()]
    return (
        "forward" not in own
        and not own.get("inplace")
        and all(_module_of(hook).startswith(_HARMLESS_HOOKS) for hook in hooks)
        and all(map(is_harmless, own["_modules"].values()))
    )


def _module_of(hook: object) -> str:
    return getattr(function_of(hook), "__module__", None) or ""


def _is_positive(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


KINDS: dict[str, Callable[[object], bool]] = {
    "gate": is_gate,
    "gelu": is_gelu,
    "function": is_function,
    "linear": is_plain_linear,
    "linear with bias": is_linear_with_bias,
    "conv1d": is_conv1d,
    "harmless": is_harmless,
    "positive": _is_positive,
    "sigmoid": lambda value: type(value) is Sigmoid,
    "1.702": lambda value: type(value) is float and value == 1.702,
    "stored": lambda value: value is not None,
}


def is_kind(owner: Module, name: str, kind: str) -> bool:
    """Whether an attribute is of a kind, and held by the module rather than by its class."""
    return not hasattr(type(owner), name.split(".")[0]) and KINDS[kind](value_of(owner, name))
