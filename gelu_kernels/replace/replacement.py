"""What was done to a model, and how to undo it."""

from dataclasses import dataclass, field
from types import MethodType, TracebackType

import torch

from gelu_kernels.replace.describe import describe


@dataclass(frozen=True)
class Change:
    """One attribute of one module: ``name`` is qualified, as in ``model.named_modules()``.

    >>> from gelu_kernels import nn
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
        return f"{self.name}: {describe(self.old)} -> {describe(self.new)}"


class Replacement:
    """What :func:`replace_activations` did to a model. ``print`` shows a line for each part.

    Attributes:
        changed: a :class:`Change` for each attribute that now holds something else.
        left_alone: what goes by the name of GELU or SiLU and was not replaced: name to reason.
        not_fused: with ``fuse_bias``, the modules replaced alone: name to reason.
        not_recomputed: with ``recompute``, the modules whose result is kept: name to reason.

    As a context manager it restores the model at the end.

    >>> from gelu_kernels import replace_activations
    >>> model = torch.nn.Sequential(torch.nn.GELU())
    >>> with replace_activations(model) as replacement:
    ...     model[0]
    replace_activations: 1 changed, 0 left alone
      0: torch.nn.modules.activation.GELU('none') -> gelu_kernels.nn.GELU('none')
    GELU(approximate='none')
    >>> type(model[0])
    <class 'torch.nn.modules.activation.GELU'>
    """

    def __init__(self, function: str) -> None:
        self.function = function  # that was called
        self.changed: list[Change] = []
        self.left_alone: dict[str, str] = {}
        self.not_fused: dict[str, str] = {}
        self.not_recomputed: dict[str, str] = {}

    def restore(self) -> None:
        """Put back every module and function that was replaced, the very objects.

        Parameters keep the values, dtypes and devices that they have now. ``changed`` is empty
        then.

        Raises:
            RuntimeError: the model was changed in the same places since, by another
                ``replace_activations`` for example, which is to be restored first. Nothing is
                restored.
        """
        for change in self.changed:
            if getattr(change.owner, change.attribute, None) is not change.new:
                raise RuntimeError(
                    f"{self.function}: restore: {change.name} no longer holds "
                    f"{describe(change.new)}; undo what changed it since first"
                )
        while self.changed:
            change = self.changed.pop()
            if isinstance(change.old, torch.nn.Module):
                change.old.train(change.new.training)
            if isinstance(change.old, MethodType):  # of the class
                delattr(change.owner, change.attribute)
            else:
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
        reasons = {
            "left alone": self.left_alone,
            "not fused": self.not_fused,
            "not recomputed": self.not_recomputed,
        }
        if not (self.changed or any(reasons.values())):
            return f"{self.function}: nothing to replace"
        counts = [f"{len(self.changed)} changed"]
        counts += [
            f"{len(why)} {kind}" for kind, why in reasons.items() if why or kind == "left alone"
        ]
        lines = [f"{self.function}: {', '.join(counts)}", *map(str, self.changed)]
        for kind, why_of in reasons.items():
            lines += [f"{name or '(the model)'}: {kind}: {why}" for name, why in why_of.items()]
        return "\n  ".join(lines)

    def set(self, owner: torch.nn.Module, name: str, new: object) -> None:
        """Change the attribute of the owner that has this qualified name."""
        change = Change(name, getattr(owner, name.rpartition(".")[2]), new, owner)
        setattr(owner, change.attribute, new)
        self.changed.append(change)
