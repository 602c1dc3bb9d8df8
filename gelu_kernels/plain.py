"""Which modules, and which tensors, are what their class says and nothing more."""

from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.modules import module as modules

_LINEAR = nn.functional.linear
_PLAIN = {Tensor, nn.Parameter, FakeTensor, FunctionalTensor}
_FORWARD = nn.Linear.forward


def is_plain_tensor(t: Tensor | None) -> bool:
    """Whether the operators take ``t``. Other subclasses, such as quantised weights, define some of
    torch's functions and none of ours; DTensor has rules for ours."""
    return t is None or type(t) in _PLAIN or hasattr(t, "placements")


def is_plain_module(module: nn.Module) -> bool:
    """Whether a call is one of the class's ``forward``: there are no hooks, and no other one."""
    own = module.__dict__
    return not (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or own.get("_compiled_call_impl")
        or modules._has_any_global_hook()
    )


def is_plain_linear(layer: object) -> bool:
    """Whether ``F.linear`` with the parameters of ``layer`` is all that calling it does. A subclass
    such as an adapter may do more, and so may a class whose ``forward`` is patched."""
    if type(layer) is not nn.Linear or nn.Linear.forward is not _FORWARD:
        return False
    parameters = layer.__dict__["_parameters"]  # without a weight that hooks compute
    weight, bias = parameters.get("weight"), parameters.get("bias")
    return (
        weight is not None
        and weight.dim() == 2
        and (bias is None or (bias.dim() == 1 and bias.size(0) == weight.size(0)))
        and is_plain_tensor(weight)
        and is_plain_tensor(bias)
        and is_plain_module(layer)
        and nn.functional.linear is _LINEAR
    )
