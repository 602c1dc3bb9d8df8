"""The public functions, and the walk over a model."""

from functools import partial

import torch

from gelu_kernels.functional.arguments import check_type
from gelu_kernels.replace import activations, occurrences, reasons
from gelu_kernels.replace.derived import arguments_of, original
from gelu_kernels.replace.describe import is_ours
from gelu_kernels.replace.fusion import class_with, gate_class, sequential_class
from gelu_kernels.replace.kinds import is_kind
from gelu_kernels.replace.methods import Method, Reader
from gelu_kernels.replace.options import Found, Options
from gelu_kernels.replace.replacement import Replacement
from gelu_kernels.replace.sequential import is_sequential, search


def replace_activations(
    model: torch.nn.Module,
    *,
    fuse_bias: bool = False,
    recompute: bool = False,
    verbose: bool = True,
) -> Replacement:
    r"""Replaces a model's GELUs and SiLUs with ours, in place, and fuses neighbouring operations.

    It replaces ``torch.nn.GELU`` and ``torch.nn.SiLU``, transformers' activations (GELU: exact,
    new, tanh, fast, accurate, quick, Bloom's; SiLU) and timm's (GELU: exact, tanh, quick; Swish).
    Every module remains the same object, with its attributes and hooks.

    It fuses patterns in the code of a module's methods: calls of ``torch.nn.functional.gelu`` and
    ``silu``, or of attributes that hold them or a ``functools.partial`` of them; and gated linear
    units, ``act(gate(x)) * up(x)``, with the clamps and the offset that
    :func:`gelu_kernels.functional.glu` takes.

    A fused module gets a class derived from its own, with new methods. Each call checks that the
    original method is unchanged and that the children are plain: no hook that fusing would skip, no
    adapter, no quantised weights, no parametrization. Otherwise the original method runs.

    Args:
        model: any module.
        fuse_bias: also fuse ``gelu(linear(x))``: the GELU adds the bias of a plain
            ``torch.nn.Linear`` and computes its gradient, in the same pass.
        recompute: also fuse ``linear(act(x))`` and ``linear(act(x) * up)``, with a plain
            ``torch.nn.Linear`` or transformers' ``Conv1D``: backward recomputes the activation
            instead of saving its result. An activation between two linear layers is fused with
            the second.
        verbose: print the report. It is printed by default, as nothing else shows an activation
            that was missed.

    Returns:
        A :class:`Replacement`. It lists what was changed, and what was not with the reason and what
        to write instead; ``restore()`` undoes all of it.

    Raises:
        TypeError: an argument is of another type.

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
    return _replace("replace_activations", model, options, verbose)


def replace_gelu(
    model: torch.nn.Module, *, fuse_bias: bool = False, verbose: bool = True
) -> Replacement:
    """Replaces a model's GELUs with ours, in place: ``replace_activations`` for GELUs only.

    In gated linear units GELUs are replaced but not fused.

    Args:
        model, fuse_bias, verbose: as for :func:`replace_activations`.

    Returns:
        A :class:`Replacement`; its ``restore()`` undoes all of it.

    Raises:
        TypeError: an argument is of another type.

    Accuracy: as for :func:`replace_activations`.

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
    return _replace("replace_gelu", model, options, verbose)


def _replace(function: str, model: torch.nn.Module, options: Options, verbose: bool) -> Replacement:
    check_type(function, "model", model, torch.nn.Module)
    flags = {"fuse_bias": options.fuse_bias, "recompute": options.recompute, "verbose": verbose}
    for name, flag in flags.items():
        check_type(function, name, flag, bool)
    result = Replacement(function)
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
    _leave_fast_path(result, modules)
    if verbose:
        print(result)
    return result


def replace_alone(
    result: Replacement, name: str, value: object, owner: torch.nn.Module, options: Options
) -> None:
    """Replace an activation that the owner holds, by its qualified name."""
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
    """Fuse the patterns in the methods of a module."""
    before = next((a for a in arguments_of(type(owner)) if isinstance(a, Options)), Options())
    options, base = options | before, original(type(owner))
    held = occurrences.held_by(owner)
    gates = {name for name, value in held.items() if activations.gate_of(value)}
    methods: dict[str, Method] = {}
    if "parametrizations" in owner._modules:  # which has changed the class too
        found = Found(not_fused=dict.fromkeys(gates, reasons.PARAMETRIZED))
    elif is_sequential(base):
        found = search(owner, options)
        _, other = reader.search(base, lambda *need: False, (), options)
        found.left_alone |= dict.fromkeys(other.operators, reasons.ONLY_FORWARD)
        found.left_alone |= other.left_alone
    else:
        sigmoids = {name for name, value in held.items() if type(value) is torch.nn.Sigmoid}
        methods, found = reader.search(base, partial(is_kind, owner), gates, options, sigmoids)
    try:
        cls = class_with(base, methods, options)
        if is_sequential(base) and found.operators:
            cls = sequential_class(base, options)
    except Exception as error:  # raised by its metaclass or by __init_subclass__
        used = {o.partition("(")[0] for each in found.operators.values() for o in each}
        why = reasons.not_derived(base, error, used)
        cls, found = base, Found(not_fused=dict.fromkeys(gates or methods, why))
    if cls is not type(owner):
        for method, operators in found.operators.items():
            name = f"{prefix}.{method}" if prefix else method
            result.add(name, getattr(base, method), operators, owner)
        result.set_class(owner, cls)
    for kind in ("left_alone", "not_fused", "not_recomputed"):
        for name, why in getattr(found, kind).items():
            getattr(result, kind)[f"{prefix}.{name}" if prefix else name] = why


def _leave_fast_path(result: Replacement, modules: dict[str, torch.nn.Module]) -> None:
    """Switch off the inference path of PyTorch's encoder layers, which has a GELU of its own."""
    changed = {id(change.owner) for change in result.changed}
    for prefix, module in modules.items():
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            flag, off, layers = "activation_relu_or_gelu", 0, [module]
        elif isinstance(module, torch.nn.TransformerEncoder):
            flag, off, layers = "use_nested_tensor", False, module.layers
        else:
            continue
        if getattr(module, flag, False) and any(id(layer) in changed for layer in layers):
            result.set(module, f"{prefix}.{flag}" if prefix else flag, off)
