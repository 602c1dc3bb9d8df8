"""The type that every loader and every stand-in returns."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


class Part(NamedTuple):
    """Examples: inputs, and their classes."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Dataset:
    """Examples to train on, to choose settings by, and to test on.

    Where `table` is given, `x` holds row indices, (examples, window), and an input is the
    concatenation of those rows: word vectors, or frames of speech.
    """

    name: str
    train: Part
    validation: Part
    test: Part
    classes: int
    table: Tensor | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    bayes_error: float | None = None
    stands_in_for: str | None = None

    def inputs(self, x: Tensor) -> Tensor:
        return x if self.table is None else self.table[x].flatten(1)

    def input_shape(self) -> torch.Size:
        return self.inputs(self.train.x[:1]).shape[1:]

    def parts(self) -> dict[str, Part]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def map(self, change: Callable[[Part], Part]) -> "Dataset":
        return replace(self, **{name: change(part) for name, part in self.parts().items()})

    def first(self, examples: int) -> "Dataset":
        """The first examples of each part, at most this many."""
        return self.map(lambda part: Part(part.x[:examples], part.y[:examples]))

    def with_validation_in_train(self) -> "Dataset":
        train = Part(*map(torch.cat, zip(self.train, self.validation, strict=True)))
        empty = Part(self.validation.x[:0], self.validation.y[:0])
        return replace(self, train=train, validation=empty)

    def to(self, device: torch.device) -> "Dataset":
        moved = self.map(lambda part: Part(part.x.to(device), part.y.to(device)))
        return replace(moved, table=None if self.table is None else self.table.to(device))

    def digest(self) -> str:
        """A hash of the examples."""
        found = hashlib.sha256()
        for t in (*self.train, *self.validation, *self.test, self.table):
            if t is not None:
                found.update(str(tuple(t.shape)).encode())
                found.update(t.contiguous().cpu().numpy())
        return found.hexdigest()
