"""Existing models by one call: :func:`replace_gelu` puts our modules where others' GELUs are."""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import TracebackType

import torch
from torch.nn.functional import gelu as torch_gelu

from gelu_kernels import functional, nn
from gelu_kernels.compositions import compositions

# By name, so that neither package is imported. Beside torch.nn.GELU and ours, which say it
# themselves, these are the classes whose formula is known.
_APPROXIMATE = {
    "transformers.activations.GELUActivation": "none",
    "transformers.activations.NewGELUActivation": "tanh",
    "transformers.activations.GELUTanh": "tanh",
    "transformers.activations.PytorchGELUTanh": "tanh",  # its name before transformers 5
    "transformers.activations.FastGELUActivation": "tanh",  # with 10 digits of sqrt(2/pi)
    "transformers.activations.AccurateGELUActivation": "tanh",
    "transformers.activations.QuickGELUActivation": "sigmoid",
    "timm.layers.activations.GELU": "none",
    "timm.layers.activations.GELUTanh": "tanh",
    "timm.layers.activations.QuickGELU": "sigmoid",
}


@dataclass(frozen=True)
class Change:
    """One attribute of one module: ``name`` is qualified, as in ``model.named_modules()``.

    >>> print(Change("mlp.act", torch.nn.GELU(), nn.GELU(), torch.nn.Module()))
    mlp.act: torch.nn.modules.activation.GELU('none') -> gelu_kernels.nn.GELU('none')
    """

    name: str
    old: object
    new: object
    owner: torch.nn.Module = field(repr=False)

    @property
    def attribute(self) -> str:
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.name}: {_describe(self.old)} -> {_describe(self.new)}"


class Replacement:
    """What :func:`replace_gelu` did to a model. ``print`` shows a line for each part.

    Attributes:
        changed: a :class:`Change` for each attribute that now holds something else.
        left_alone: what goes by the name of GELU and was not replaced: name to reason.
        not_fused: with ``fuse_bias``, the modules replaced alone: name to reason.

    As a context manager it restores the model at the end.

    >>> model = torch.nn.Sequential(torch.nn.GELU())
    >>> with replace_gelu(model) as replacement:
    ...     model[0]
    replace_gelu: 1 changed, 0 left alone
      0: torch.nn.modules.activation.GELU('none') -> gelu_kernels.nn.GELU('none')
    GELU(approximate='none')
    >>> type(model[0])
    <class 'torch.nn.modules.activation.GELU'>
    """

    def __init__(self) -> None:
        self.changed: list[Change] = []
        self.left_alone: dict[str, str] = {}
        self.not_fused: dict[str, str] = {}

    def restore(self) -> None:
        """Put back every module and function that was replaced, the very objects.

        Parameters keep the values, dtypes and devices that they have now. ``changed`` is empty
        then.

        Raises:
            RuntimeError: the model was changed in the same places since, by another
                ``replace_gelu`` for example, which is to be restored first. Nothing is restored.
        """
        for change in self.changed:
            if getattr(change.owner, change.attribute, None) is not change.new:
                raise RuntimeError(
                    f"replace_gelu: restore: {change.name} no longer holds "
                    f"{_describe(change.new)}; undo what changed it since first"
                )
        while self.changed:
            change = self.changed.pop()
            if isinstance(change.old, torch.nn.Module):
                change.old.train(change.new.training)
            setattr(change.owner, change.attribute, change.old)

    def __enter__(self) -> "Replacement":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()

    def __str__(self) -> str:
        if not (self.changed or self.left_alone or self.not_fused):
            return "replace_gelu: nothing to replace"
        head = f"replace_gelu: {len(self.changed)} changed, {len(self.left_alone)} left alone"
        if self.not_fused:
            head += f", {len(self.not_fused)} not fused"
        lines = [head, *map(str, self.changed)]
        lines += [
            f"{name or '(the model)'}: left alone: {why}" for name, why in self.left_alone.items()
        ]
        lines += [f"{name}: not fused: {why}" for name, why in self.not_fused.items()]
        return "\n  ".join(lines)

    def _set(self, owner: torch.nn.Module, name: str, new: object) -> None:
        change = Change(name, getattr(owner, name.rpartition(".")[2]), new, owner)
        setattr(owner, change.attribute, new)
        self.changed.append(change)


def replace_gelu(model: torch.nn.Module, *, fuse_bias: bool = False) -> Replacement:
    r"""Put :class:`gelu_kernels.nn.GELU` in place of the GELUs of a model, in place.

    Replaced are the modules ``torch.nn.GELU``, the GELUs of transformers (exact, new, tanh, fast,
    accurate, quick) and of timm (exact, tanh, quick), and ``torch.nn.functional.gelu``, or a
    ``functools.partial`` of it, where a module holds it as an attribute. An instance that is shared
    stays shared. Parameters and state dict are what they were.

    Left alone, and reported, is what else goes by the name of GELU: other classes and functions,
    subclasses, modules with hooks or with a ``forward`` of their own, ``forward`` methods that
    themselves call a function named so, and the model itself if it is one.

    Args:
        model: any module.
        fuse_bias: make one :class:`gelu_kernels.nn.LinearGELU` of each ``torch.nn.Linear`` and the
            GELU after it, which becomes ``torch.nn.Identity``. That they follow one another is to
            be seen in a ``torch.nn.Sequential`` or in the source of the module that has them both,
            ``act(fc1(x))``, which is to use neither of them otherwise. The ``Linear`` must have a
            bias, no hooks and no second place in the model; else the report says why not.
            Parameters stay the same objects under the same names.

    Returns:
        A :class:`Replacement`, which has been printed; its ``restore()`` undoes all of it.

    Raises:
        TypeError: ``model`` is not a module.

    Accuracy: that of :class:`gelu_kernels.nn.GELU` for the formula replaced. That of transformers'
    ``FastGELUActivation`` takes 10 digits of :math:`\sqrt{2/\pi}`, ours all: a relative difference
    of 4e-12.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.

    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.GELU("tanh"), torch.nn.Linear(8, 2)
    ... )
    >>> replacement = replace_gelu(model, fuse_bias=True)
    replace_gelu: 2 changed, 0 left alone
      0: torch.nn.modules.linear.Linear -> gelu_kernels.nn.LinearGELU('tanh')
      1: torch.nn.modules.activation.GELU('tanh') -> torch.nn.modules.linear.Identity
    >>> replacement.restore()
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"replace_gelu: model must be a torch.nn.Module, got {type(model).__name__}"
        )
    result = Replacement()
    modules = dict(model.named_modules())
    places = Counter(id(child) for module in modules.values() for child in module._modules.values())
    ours: dict[int, torch.nn.Module | Callable] = {}
    for prefix, owner in modules.items():
        if _is_ours(owner) or _approximate(owner):
            continue
        if function := _calls_gelu(owner):
            result.left_alone[prefix] = f"its forward calls {function} itself"
        for attribute, old in [*owner._modules.items(), *vars(owner).items()]:
            name = f"{prefix}.{attribute}" if prefix else attribute
            approximate = _approximate(old)
            if why := _unknown(old) if approximate is None else _intercepted(old):
                result.left_alone[name] = why
            if why or approximate is None:
                continue
            linear, why = _linear_before(owner, attribute, places) if fuse_bias else ("", "")
            if linear:
                fused = _linear_gelu(getattr(owner, linear), approximate)
                result._set(owner, name.removesuffix(attribute) + linear, fused)
                result._set(owner, name, _nothing_for(old))
            elif not _is_ours(old):
                result._set(owner, name, ours.setdefault(id(old), _ours_for(old, approximate)))
            if why:
                result.not_fused[name] = why
    if _approximate(model):
        result.left_alone[""] = "a module cannot be replaced in place, but where another holds it"
    _leave_fast_path(result, modules)
    print(result)
    return result


def _approximate(activation: object) -> str | None:
    """Which gate a module or function is; None if it is none that is known."""
    cls = type(activation)
    if cls in (torch.nn.GELU, nn.GELU):
        return activation.approximate
    function = _function(activation)
    if function is torch_gelu or function is functional.gelu:
        return getattr(activation, "keywords", {}).get("approximate", "none")
    return _APPROXIMATE.get(f"{cls.__module__}.{cls.__qualname__}")


def _unknown(value: object) -> str:
    """Why what goes by the name of GELU cannot be replaced; empty for all else."""
    if isinstance(value, torch.nn.Module):
        name = "" if value._modules else getattr(value, "original_name", type(value).__name__)
    else:
        name = "" if isinstance(value, type) else getattr(_function(value), "__name__", "")
    if "gelu" not in name.lower() or _is_ours(value):
        return ""
    return f"{_describe(value)} is not known to be one of the three gates"


def _calls_gelu(module: torch.nn.Module) -> str:
    """The name of the GELU function that the source of ``forward`` uses, if it does."""
    if "gelu" in type(module).__name__.lower() and not module._modules:
        return ""  # left alone by its name already
    forward = getattr(type(module), "forward", None)  # none in TorchScript
    code = getattr(inspect.unwrap(forward), "__code__", None)
    names = code.co_names if code else ()
    return next((n for n in names if "gelu" in n.lower() and not hasattr(module, n)), "")


def _intercepted(value: object) -> str:
    if not isinstance(value, torch.nn.Module):
        return ""
    if "forward" in vars(value):
        return "its forward was replaced"
    hooks = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    return "it has hooks" if any(getattr(value, f"_{kind}") for kind in hooks) else ""


def _linear_before(owner: torch.nn.Module, attribute: str, places: Counter[int]) -> tuple[str, str]:
    """The attribute with the Linear whose result this one alone sees; or why there is none."""
    if "forward" in vars(owner):
        before = None
    elif type(owner).forward is torch.nn.Sequential.forward:
        before = {second: first for first, second in pairwise(owner._modules)}.get(attribute)
    else:
        before = compositions(type(owner)).get(attribute)
    linear = before and getattr(owner, before, None)
    if linear is None:
        why = "no Linear is seen to come before it"
    elif type(linear) is not torch.nn.Linear:
        why = f"{_describe(linear)} comes before it"
    elif linear.bias is None:
        why = "the Linear before it has no bias"
    elif places[id(linear)] > 1:
        why = "the Linear before it is shared"
    elif _intercepted(linear):
        why = "the Linear before it has hooks or another forward"
    else:
        return before, ""
    return "", why


def _linear_gelu(linear: torch.nn.Linear, approximate: str) -> nn.LinearGELU:
    # The same dictionary of parameters: what replaces one of them in either is seen in both.
    fused = nn.LinearGELU.__new__(nn.LinearGELU)
    vars(fused).update(vars(linear), approximate=approximate)
    return fused


def _ours_for(old: object, approximate: str) -> torch.nn.Module | Callable:
    if isinstance(old, torch.nn.Module):
        return nn.GELU(approximate).train(old.training)
    if approximate == "none":
        return functional.gelu
    return partial(functional.gelu, approximate=approximate)


def _nothing_for(old: object) -> torch.nn.Module | Callable:
    if isinstance(old, torch.nn.Module):
        return torch.nn.Identity().train(old.training)
    return _identity


def _identity(input: torch.Tensor) -> torch.Tensor:
    return input


def _leave_fast_path(result: Replacement, modules: dict[str, torch.nn.Module]) -> None:
    """In evaluation PyTorch's encoder layer computes a GELU of its own, whatever its activation."""
    changed = {id(change.owner) for change in result.changed}
    for prefix, module in modules.items():
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            flag, off, layers = "activation_relu_or_gelu", 0, [module]
        elif isinstance(module, torch.nn.TransformerEncoder):
            flag, off, layers = "use_nested_tensor", False, module.layers
        else:
            continue
        if getattr(module, flag, False) and any(id(layer) in changed for layer in layers):
            result._set(module, f"{prefix}.{flag}" if prefix else flag, off)


def _function(value: object) -> object:
    return value.func if isinstance(value, partial) else value


def _is_ours(value: object) -> bool:
    named = type(value) if isinstance(value, torch.nn.Module) else _function(value)
    return _package(named) in (nn.__name__, functional.__name__)


def _package(named: object) -> str:
    """Where it is imported from: for ours the package, not the file in it."""
    module = getattr(named, "__module__", None) or ""
    package = module.rpartition(".")[0]
    return package if package in (nn.__name__, functional.__name__) else module


def _describe(value: object) -> str:
    if value is torch_gelu:
        return "torch.nn.functional.gelu"
    if isinstance(value, torch.nn.Module):
        name = f"{_package(type(value))}.{type(value).__qualname__}"
        approximate = getattr(value, "approximate", None)
        return f"{name}({approximate!r})" if approximate else name
    if isinstance(value, partial):
        keywords = ", ".join(f"{k}={v!r}" for k, v in value.keywords.items())
        return f"partial({_describe(value.func)}, {keywords})"
    name = getattr(value, "__qualname__", None)
    return f"{_package(value)}.{name}" if name else repr(value)
