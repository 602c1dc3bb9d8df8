"""Recognises modules and tensors without subclasses, hooks or patches that change what they do."""

import sys

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.modules import module as modules

_PLAIN = {Tensor, nn.Parameter, FakeTensor, FunctionalTensor}


def as_written(function: object, module: str) -> object:
    """The function, if it is defined in the module's own file; None if it was patched."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    return function if file and file == getattr(sys.modules[module], "__file__", None) else None


_CALL = nn.Module.__call__
_FORWARD = as_written(nn.Linear.forward, nn.Linear.__module__)


def is_plain_tensor(t: Tensor | None) -> bool:
    """Whether the operators take ``t``. Other subclasses, such as quantised weights, implement some
    of torch's functions and none of ours; for DTensor we register rules."""
    return t is None or type(t) in _PLAIN or hasattr(t, "placements")


def _is_of_torch(function: object) -> bool:
    """torch.fx and torch.export replace ``Module.__call__`` while they trace."""
    return getattr(function, "__globals__", {}).get("__name__", "").startswith("torch.")


def is_plain_module(module: nn.Module) -> bool:
    """Whether a call only runs the class's ``forward``: no hooks, no other ``forward``."""
    own = module.__dict__
    return not (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or "_call_impl" in own
        or own.get("_compiled_call_impl")
        or not (nn.Module.__call__ is _CALL or _is_of_torch(nn.Module.__call__))
        or modules._has_any_global_hook()
    )


def is_plain_linear(layer: object) -> bool:
    """Whether calling ``layer`` only computes ``F.linear`` with its parameters. A subclass such as
    an adapter may do more, and so may a class whose ``forward`` is patched."""
    if type(layer) is not nn.Linear or nn.Linear.forward is not _FORWARD:
        return False
    parameters = layer.__dict__["_parameters"]  # a weight that hooks compute is not in it
    own = layer.__dict__
    if "weight" not in parameters or "bias" not in parameters or "weight" in own or "bias" in own:
        return False
    weight, bias = parameters["weight"], parameters["bias"]
    return (
        weight is not None
        and is_plain_tensor(weight)
        and is_plain_tensor(bias)
        and weight.dim() == 2
        and (bias is None or (bias.dim() == 1 and bias.size(0) == weight.size(0)))
        and is_plain_module(layer)
        and nn.functional.linear is torch._C._nn.linear
    )
