"""What was done to a model, and how to undo it."""

from dataclasses import dataclass, field
from types import TracebackType

import torch

from gelu_kernels.replace.describe import describe


@dataclass(frozen=True)
class Change:
    """One change to a model, by qualified name as in ``model.named_modules()``.

    ``old`` is the activation or the method's function; ``new`` names the operators that now compute
    it or its patterns. For an attribute that was set, they are its values before and after.

    >>> print(Change("mlp.act", torch.nn.GELU(), ("gate(normal)",), torch.nn.Module()))
    mlp.act: torch.nn.modules.activation.GELU('none') -> gate(normal)
    """

    name: str
    old: object
    new: object
    owner: torch.nn.Module = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {describe(self.old)} -> {describe(self.new)}"


class Replacement:
    """Report of what ``replace_activations`` did to a model, which can also undo it.

    ``print`` shows a line for each entry, ``repr`` the counts.

    Attributes:
        changed: a :class:`Change` for each activation replaced, method fused, and attribute set.
        left_alone: name to reason, for anything named GELU or SiLU, or calling one, that was not
            replaced.
        not_fused: name to reason, for activations that were replaced but not fused.
        not_recomputed: name to reason, for activations whose result is saved despite ``recompute``.

    A reason ends with what to write instead, if anything helps: "it is kept in a list; make it an
    attribute of the module".

    As a context manager it restores the model on exit.

    >>> from gelu_kernels import replace_activations
    >>> model = torch.nn.Sequential(torch.nn.GELU())
    >>> with replace_activations(model) as replacement:
    ...     model[0]
    replace_activations: 1 changed, 0 left alone
      0: torch.nn.modules.activation.GELU('none') -> gate(normal)
    GELU(approximate='none')
    >>> type(model[0])
    <class 'torch.nn.modules.activation.GELU'>
    """

    def __init__(self, function: str) -> None:
        self.function = function  # the name of the one that was called
        self.changed: list[Change] = []
        self.left_alone: dict[str, str] = {}
        self.not_fused: dict[str, str] = {}
        self.not_recomputed: dict[str, str] = {}
        # Owner, attribute, its value before, and its value now.
        self._given: list[tuple[torch.nn.Module, str, object, object]] = []

    def restore(self) -> None:
        """Restore the classes of modules and the attributes that were set.

        Parameters, hooks and everything else stay as they are now. Empties ``changed``.

        Raises:
            RuntimeError: the same classes or attributes were changed since, for example by another
                ``replace_activations``, which must be restored first. Nothing is restored.
        """
        for owner, attribute, _, given in self._given:
            if getattr(owner, attribute, None) is not given:
                raise RuntimeError(
                    f"{self.function}: restore: {attribute} of a {type(owner).__name__} no longer "
                    f"holds {describe(given)}; undo what changed it since first"
                )
        for owner, attribute, before, _ in reversed(self._given):
            object.__setattr__(owner, attribute, before)
        self.changed.clear()
        self._given.clear()

    def __enter__(self) -> "Replacement":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<Replacement of {self._summary()}>"

    def __str__(self) -> str:
        lines = [self._summary(), *map(str, self.changed)]
        for kind, why_of in self._reasons().items():
            lines += [f"{name or '(the model)'}: {kind}: {why}" for name, why in why_of.items()]
        return "\n  ".join(lines)

    def _summary(self) -> str:
        reasons = self._reasons()
        if not (self.changed or any(reasons.values())):
            return f"{self.function}: nothing to replace"
        counts = [f"{len(self.changed)} changed"]
        counts += [
            f"{len(why)} {kind}" for kind, why in reasons.items() if why or kind == "left alone"
        ]
        return f"{self.function}: {', '.join(counts)}"

    def _reasons(self) -> dict[str, dict[str, str]]:
        return {
            "left alone": self.left_alone,
            "not fused": self.not_fused,
            "not recomputed": self.not_recomputed,
        }

    def set(self, owner: torch.nn.Module, name: str, new: object) -> None:
        """Set an attribute of the owner, by its qualified name."""
        attribute = name.rpartition(".")[2]
        self.changed.append(Change(name, getattr(owner, attribute), new, owner))
        self._give(owner, attribute, new)

    def set_class(self, module: torch.nn.Module, cls: type) -> None:
        """Give a module a class that is derived from its own."""
        self._give(module, "__class__", cls)

    def add(self, name: str, old: object, new: tuple[str, ...], owner: torch.nn.Module) -> None:
        """Record what a new class changes, for the report."""
        self.changed.append(Change(name, old, new, owner))

    def tidy(self) -> None:
        """Drop the entries for a module whose own method is fused, and for methods of a module that
        is itself left alone."""
        fused = {c.name.rpartition(".")[0] for c in self.changed if isinstance(c.new, tuple)}
        names = self.left_alone.keys()
        self.left_alone = {
            name: why
            for name, why in self.left_alone.items()
            if name not in fused and (name == "" or name.rpartition(".")[0] not in names)
        }

    def _give(self, owner: torch.nn.Module, attribute: str, new: object) -> None:
        self._given.append((owner, attribute, getattr(owner, attribute), new))
        object.__setattr__(owner, attribute, new)  # not the owner's own __setattr__
