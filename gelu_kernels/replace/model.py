"""The walk over a model."""

from collections import Counter

import torch

from gelu_kernels.replace import activations
from gelu_kernels.replace.describe import is_ours
from gelu_kernels.replace.encoder import leave_fast_path
from gelu_kernels.replace.experts import replace_clamped_glu
from gelu_kernels.replace.fused_bias import linear_before, linear_gelu, nothing_for
from gelu_kernels.replace.glu import glu_gate_for, is_factor
from gelu_kernels.replace.recompute import linear_after, recomputing
from gelu_kernels.replace.replacement import Replacement


def replace_activations(
    model: torch.nn.Module, *, fuse_bias: bool = False, recompute: bool = False
) -> Replacement:
    r"""Put :class:`gelu_kernels.nn.GELU` and :class:`gelu_kernels.nn.SiLU` in place of the GELUs
    and SiLUs of a model, in place, and one operator in place of each gated linear unit.

    Replaced are the modules ``torch.nn.GELU`` and ``torch.nn.SiLU``, the ones of transformers
    (GELU: exact, new, tanh, fast, accurate, quick, Bloom's; SiLU) and of timm (GELU: exact, tanh,
    quick; Swish), and ``torch.nn.functional.gelu`` and ``silu``, or a ``functools.partial`` of
    them, where a module holds them as an attribute. An instance that is shared stays shared.
    Parameters and state dict are what they were.

    A gated linear unit is computed by one ``fused_glu`` where the source of a module shows it:
    ``act(gate_proj(x)) * up_proj(x)``, or a product with a name to which alone ``act(x)`` was
    assigned. The module then does nothing else with ``act``, whose place a ``GLUGate`` takes. What
    it returns is no tensor: it waits for the product, and who calls ``act`` from outside, or hooks
    it later, sees that. The module itself, its ``forward``, parameters and hooks stay. So is the
    clamped unit of gpt-oss's experts, a method, with the limit that they have.

    Left alone, and reported, is what else goes by the name of GELU or SiLU: other classes and
    functions, subclasses, modules with hooks or with a ``forward`` of their own, ones that
    overwrite their input, ``forward`` methods that themselves call a function named so, and the
    model itself if it is one.

    Args:
        model: any module.
        fuse_bias: make one :class:`gelu_kernels.nn.LinearGELU` of each ``torch.nn.Linear`` and the
            GELU after it, which becomes ``torch.nn.Identity``. That they follow one another is to
            be seen in a ``torch.nn.Sequential`` or in the source of the module that has them both,
            ``act(fc1(x))``, which is to use neither of them otherwise. The ``Linear`` must have a
            bias, no hooks and no second place in the model; else the report says why not.
            Parameters stay the same objects under the same names.
        recompute: make one :class:`gelu_kernels.nn.GateLinear` of each activation and the
            ``torch.nn.Linear`` (or transformers' ``Conv1D``) after it, and one layer of each gated
            linear unit and the ``Linear`` after it: backward computes the activation again, in
            place of keeping its result. That the ``Linear`` alone takes the result is to be seen as
            for ``fuse_bias``, or in the sources of two modules and the one that has both, as in
            BERT. The ``Linear`` must have no hooks and no second place in the model; else the
            report says why not. An activation between two ``Linear`` goes with the second.

    Returns:
        A :class:`Replacement`, which has been printed; its ``restore()`` undoes all of it.

    Raises:
        TypeError: ``model`` is not a module.

    Accuracy: the one of :class:`gelu_kernels.nn.GELU`, :class:`gelu_kernels.nn.SiLU` and
    :func:`gelu_kernels.functional.geglu` for the formula replaced. Transformers'
    ``FastGELUActivation`` takes 10 digits of :math:`\sqrt{2/\pi}` and ``BloomGelu`` 8, ours all:
    relative differences of 4e-12 and 1e-9.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2; Shazeer, "GLU
    Variants Improve Transformer" (2020), section 2.

    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.GELU("tanh"), torch.nn.Linear(8, 2), torch.nn.SiLU()
    ... )
    >>> replacement = replace_activations(model)
    replace_activations: 2 changed, 0 left alone
      1: torch.nn.modules.activation.GELU('tanh') -> gelu_kernels.nn.GELU('tanh')
      3: torch.nn.modules.activation.SiLU -> gelu_kernels.nn.SiLU
    >>> replacement.restore()
    """
    result = Replacement("replace_activations")
    return _replace(
        model, result, ("gelu", "silu"), fuse_glu=True, fuse_bias=fuse_bias, recompute=recompute
    )


def replace_gelu(model: torch.nn.Module, *, fuse_bias: bool = False) -> Replacement:
    """:func:`replace_activations` for GELUs alone: each by a GELU, in gated linear units too.

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
      0: torch.nn.modules.linear.Linear -> gelu_kernels.nn.LinearGELU('tanh')
      1: torch.nn.modules.activation.GELU('tanh') -> torch.nn.modules.linear.Identity
    >>> replacement.restore()
    """
    result = Replacement("replace_gelu")
    return _replace(model, result, ("gelu",), fuse_glu=False, fuse_bias=fuse_bias, recompute=False)


def _replace(
    model: torch.nn.Module,
    result: Replacement,
    names: tuple[str, ...],
    *,
    fuse_glu: bool,
    fuse_bias: bool,
    recompute: bool,
) -> Replacement:
    """Activations that go by one of the names."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"{result.function}: model must be a torch.nn.Module, got {type(model).__name__}"
        )
    modules = dict(model.named_modules())
    places = Counter(id(child) for module in modules.values() for child in module._modules.values())
    ours: dict[tuple[int, bool], object] = {}  # for an activation that is shared
    for prefix, owner in modules.items():
        if is_ours(owner) or activations.gate_of(owner):
            continue
        if function := activations.calls_itself(owner, names):
            result.left_alone[prefix] = f"its forward calls {function} itself"
        for attribute, old in [*owner._modules.items(), *vars(owner).items()]:
            name = f"{prefix}.{attribute}" if prefix else attribute
            gate = activations.gate_of(old)
            if gate and activations.name_of(gate) not in names:
                continue
            if why := activations.intercepted(old) if gate else activations.unknown(old, names):
                result.left_alone[name] = why
            if why or not gate:
                continue
            is_gate_of_glu = fuse_glu and is_factor(owner, attribute)
            if recompute:
                place, why = linear_after(modules, prefix, attribute, is_gate_of_glu, places)
                if place:
                    linear = recomputing(place.linear, gate, is_gate_of_glu)
                    result.set(place.owner, place.name, linear)
                    new = glu_gate_for(old, gate, (linear,)) if is_gate_of_glu else nothing_for(old)
                    result.set(owner, name, new)
                    continue
                result.not_recomputed[name] = why
            if is_gate_of_glu:
                new = ours.setdefault((id(old), True), glu_gate_for(old, gate))
                result.set(owner, name, new)
                continue
            to_fuse = fuse_bias and activations.name_of(gate) == "gelu"
            linear, why = linear_before(owner, attribute, places) if to_fuse else ("", "")
            if linear:
                fused = linear_gelu(getattr(owner, linear), gate)
                result.set(owner, name.removesuffix(attribute) + linear, fused)
                result.set(owner, name, nothing_for(old))
            elif not is_ours(old):
                new = ours.setdefault((id(old), False), activations.ours_for(old, gate))
                result.set(owner, name, new)
            if why:
                result.not_fused[name] = why
        if fuse_glu:
            replace_clamped_glu(result, prefix, owner)
    if (gate := activations.gate_of(model)) and activations.name_of(gate) in names:
        result.left_alone[""] = "a module cannot be replaced in place, but where another holds it"
    leave_fast_path(result, modules)
    print(result)
    return result
