"""The walk over a model."""

from functools import partial

import torch

from gelu_kernels.replace import activations
from gelu_kernels.replace.describe import is_ours
from gelu_kernels.replace.encoder import leave_fast_path
from gelu_kernels.replace.fusion import class_with, options_of, original, sequential_class
from gelu_kernels.replace.kinds import is_kind
from gelu_kernels.replace.methods import Reader
from gelu_kernels.replace.options import Options
from gelu_kernels.replace.replacement import Replacement
from gelu_kernels.replace.sequential import is_sequential, search


def replace_activations(
    model: torch.nn.Module, *, fuse_bias: bool = False, recompute: bool = False
) -> Replacement:
    r"""Replace the GELUs and SiLUs of a model by ours, in place, and fuse them with the operations
    beside them.

    Each activation module becomes a :class:`gelu_kernels.nn.GELU` or :class:`gelu_kernels.nn.SiLU`:
    ``torch.nn``'s, transformers' (GELU: exact, new, tanh, fast, accurate, quick, Bloom's; SiLU) and
    timm's (GELU: exact, tanh, quick; Swish). So do ``torch.nn.functional.gelu`` and ``silu``, or a
    ``functools.partial`` of them, held as attributes. A shared instance stays shared, and hooks go
    with it. No other child is replaced or changed.

    Fused are patterns in the code of a module's methods: calls of ``F.gelu`` and ``F.silu``, and
    gated linear units, ``act(gate(x)) * up(x)``, with the clamps and the offset that
    :func:`gelu_kernels.functional.glu` takes. The module gets a class derived from its own with the
    fused methods. They run as long as each call finds what they were made from: the same method,
    and plain children. With hooks on a child that is passed by, an adapter, quantised weights or a
    parametrization, the original method runs.

    Args:
        model: any module.
        fuse_bias: also fuse ``gelu(linear(x))``: the pass of the GELU adds the bias of a plain
            ``torch.nn.Linear`` and computes its gradient.
        recompute: also fuse ``linear(act(x))`` and ``linear(act(x) * up)``, with a plain
            ``torch.nn.Linear`` or transformers' ``Conv1D``: backward recomputes the activation
            instead of keeping its result. An activation between two linear layers goes with the
            second.

    Returns:
        A :class:`Replacement`, which has been printed. It lists what was changed and, with reasons,
        what was not; ``restore()`` undoes all of it.

    Raises:
        TypeError: ``model`` is not a module.

    Accuracy: as :class:`gelu_kernels.nn.GELU`, :class:`gelu_kernels.nn.SiLU` and
    :func:`gelu_kernels.functional.glu` for the formula replaced. Transformers'
    ``FastGELUActivation`` has 10 digits of :math:`\sqrt{2/\pi}` and ``BloomGelu`` 8, ours all:
    relative differences of 4e-12 and 1e-9.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2; Shazeer, "GLU
    Variants Improve Transformer" (2020), section 2.

    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.GELU("tanh"), torch.nn.Linear(8, 2), torch.nn.SiLU()
    ... )
    >>> replacement = replace_activations(model, fuse_bias=True)
    replace_activations: 3 changed, 0 left alone
      1: torch.nn.modules.activation.GELU('tanh') -> gelu_kernels.nn.GELU('tanh')
      3: torch.nn.modules.activation.SiLU -> gelu_kernels.nn.SiLU
      forward: torch.nn.modules.container.Sequential.forward -> bias_gelu(0, 1)
    >>> replacement.restore()
    """
    options = Options(("gelu", "silu"), True, fuse_bias, recompute)
    return _replace(model, Replacement("replace_activations"), options)


def replace_gelu(model: torch.nn.Module, *, fuse_bias: bool = False) -> Replacement:
    """:func:`replace_activations` for GELUs alone. In gated linear units they are replaced too, and
    not fused.

    Args:
        model, fuse_bias: as there.

    Returns:
        A :class:`Replacement`, which has been printed; its ``restore()`` undoes all of it.

    Raises:
        TypeError: ``model`` is not a module.

    Accuracy: as there.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.GELU("tanh"), torch.nn.Linear(8, 2), torch.nn.SiLU()
    ... )
    >>> replacement = replace_gelu(model, fuse_bias=True)
    replace_gelu: 2 changed, 0 left alone
      1: torch.nn.modules.activation.GELU('tanh') -> gelu_kernels.nn.GELU('tanh')
      forward: torch.nn.modules.container.Sequential.forward -> bias_gelu(0, 1)
    >>> replacement.restore()
    """
    options = Options(("gelu",), False, fuse_bias, False)
    return _replace(model, Replacement("replace_gelu"), options)


def _replace(model: torch.nn.Module, result: Replacement, options: Options) -> Replacement:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"{result.function}: model must be a torch.nn.Module, got {type(model).__name__}"
        )
    modules = dict(model.named_modules())
    ours: dict[int, object] = {}  # for an activation that is shared
    reader = Reader()
    for prefix, owner in modules.items():
        is_gate = is_ours(owner) or activations.gate_of(owner)
        if not is_gate and not activations.is_compiled(owner):
            replace_alone(result, prefix, owner, options, ours)
            if not isinstance(owner, torch.jit.ScriptModule):
                fuse(result, prefix, owner, options, reader)
    if (gate := activations.gate_of(model)) and activations.name_of(gate) in options.names:
        result.left_alone[""] = "a module cannot be replaced in place, but where another holds it"
    result.tidy()
    leave_fast_path(result, modules)
    print(result)
    return result


def replace_alone(
    result: Replacement,
    prefix: str,
    owner: torch.nn.Module,
    options: Options,
    ours: dict[int, object],
) -> None:
    """The activations that a module holds."""
    for attribute, old in activations.held_by(owner).items():
        name = f"{prefix}.{attribute}" if prefix else attribute
        gate = activations.gate_of(old)
        if gate and activations.name_of(gate) not in options.names:
            continue
        if why := activations.why_not(old, options.names):
            result.left_alone[name] = why
        elif gate and not is_ours(old):
            result.set(owner, name, ours.setdefault(id(old), activations.ours_for(old, gate)))


def fuse(
    result: Replacement, prefix: str, owner: torch.nn.Module, options: Options, reader: Reader
) -> None:
    """The patterns in the methods of a module."""
    options = options | options_of(type(owner))
    base = original(type(owner))
    if is_sequential(base):
        found = search(owner, options)
        cls = sequential_class(base, options) if found.operators else base
    else:
        held = activations.held_by(owner)
        gates = {name for name, value in held.items() if activations.gate_of(value)}
        methods, found = reader.search(base, partial(is_kind, owner), gates, options)
        try:
            cls = class_with(base, methods, options)
        except Exception as error:  # of its metaclass, or of __init_subclass__
            why = f"no class can be derived from {base.__name__}: {error}"
            cls, found.not_fused = base, dict.fromkeys(gates or methods, why)
    if cls is not type(owner):
        result.set_class(owner, prefix, cls, found.operators)
    for kind in ("left_alone", "not_fused", "not_recomputed"):
        for name, why in getattr(found, kind).items():
            getattr(result, kind)[f"{prefix}.{name}" if prefix else name] = why
