"""The walk over a model."""

from functools import partial

import torch

from gelu_kernels.replace import activations, occurrences
from gelu_kernels.replace.derived import arguments_of, original
from gelu_kernels.replace.describe import is_ours
from gelu_kernels.replace.encoder import leave_fast_path
from gelu_kernels.replace.fusion import class_with, gate_class, sequential_class
from gelu_kernels.replace.kinds import is_kind
from gelu_kernels.replace.methods import Method, Reader
from gelu_kernels.replace.options import Found, Options
from gelu_kernels.replace.replacement import Replacement
from gelu_kernels.replace.sequential import is_sequential, search


def replace_activations(
    model: torch.nn.Module, *, fuse_bias: bool = False, recompute: bool = False
) -> Replacement:
    r"""Compute the GELUs and SiLUs of a model by our operators, in place, and fuse them with the
    operations beside them.

    Replaced are ``torch.nn.GELU`` and ``torch.nn.SiLU``, transformers' activations (GELU: exact,
    new, tanh, fast, accurate, quick, Bloom's; SiLU) and timm's (GELU: exact, tanh, quick; Swish).
    Every module stays the object it is, with its attributes and hooks.

    Fused are patterns in the code of a module's methods: calls of ``torch.nn.functional.gelu`` and
    ``silu``, or of attributes that hold them or a ``functools.partial`` of them, and gated linear
    units, ``act(gate(x)) * up(x)``, with the clamps and the offset that
    :func:`gelu_kernels.functional.glu` takes.

    A module gets a class derived from its own, with the new methods. They run as long as each call
    finds what they were made from: the same method, and plain children. With hooks on a child that
    is passed by, an adapter, quantised weights or a parametrization, the original method runs.

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
      1: torch.nn.modules.activation.GELU('tanh') -> gate(normal_tanh)
      3: torch.nn.modules.activation.SiLU -> gate(logistic)
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
      1: torch.nn.modules.activation.GELU('tanh') -> gate(normal_tanh)
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
    reader = Reader()
    if activations.gate_of(model):
        replace_alone(result, "", model, model, options)
    for prefix, owner in modules.items():
        is_gate = is_ours(owner) or activations.gate_of(owner)
        if not is_gate and not occurrences.is_compiled(owner):
            for attribute, value in occurrences.held_by(owner).items():
                name = f"{prefix}.{attribute}" if prefix else attribute
                replace_alone(result, name, value, owner, options)
            if not isinstance(owner, torch.jit.ScriptModule):
                fuse(result, prefix, owner, options, reader)
    result.tidy()
    leave_fast_path(result, modules)
    print(result)
    return result


def replace_alone(
    result: Replacement, name: str, value: object, owner: torch.nn.Module, options: Options
) -> None:
    """An activation of this qualified name, which the owner holds."""
    gate = activations.gate_of(value)
    if gate and activations.name_of(gate) not in options.names:
        return
    if why := occurrences.why_not(value, options.names):
        result.left_alone[name] = why
        return
    is_module = isinstance(value, torch.nn.Module)
    if gate and is_module and not is_ours(value) and original(type(value)) is type(value):
        result.add(name, value, (f"gate({gate})",), owner)
        result.set_class(value, gate_class(type(value)))


def fuse(
    result: Replacement, prefix: str, owner: torch.nn.Module, options: Options, reader: Reader
) -> None:
    """The patterns in the methods of a module."""
    before = next((a for a in arguments_of(type(owner)) if isinstance(a, Options)), Options())
    options, base = options | before, original(type(owner))
    held = occurrences.held_by(owner)
    gates = {name for name, value in held.items() if activations.gate_of(value)}
    methods: dict[str, Method] = {}
    if "parametrizations" in owner._modules:  # it changes the class too
        found = Found(not_fused=dict.fromkeys(gates, "its module is parametrized"))
    elif is_sequential(base):
        found = search(owner, options)
        _, other = reader.search(base, lambda *need: False, (), options)
        why = "of a Sequential, only forward is fused"
        found.left_alone |= dict.fromkeys(other.operators, why) | other.left_alone
    else:
        sigmoids = {name for name, value in held.items() if type(value) is torch.nn.Sigmoid}
        methods, found = reader.search(base, partial(is_kind, owner), gates, options, sigmoids)
    try:
        cls = class_with(base, methods, options)
        if is_sequential(base) and found.operators:
            cls = sequential_class(base, options)
    except Exception as error:  # of its metaclass, or of __init_subclass__
        why = f"no class can be derived from {base.__name__}: {error}"
        cls, found = base, Found(not_fused=dict.fromkeys(gates or methods, why))
    if cls is not type(owner):
        for method, operators in found.operators.items():
            name = f"{prefix}.{method}" if prefix else method
            result.add(name, getattr(base, method), operators, owner)
        result.set_class(owner, cls)
    for kind in ("left_alone", "not_fused", "not_recomputed"):
        for name, why in getattr(found, kind).items():
            getattr(result, kind)[f"{prefix}.{name}" if prefix else name] = why
