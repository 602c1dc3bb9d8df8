"""The numbers of csrc/gates/coefficients, from the same programs (fit/)."""

from dataclasses import dataclass
from types import SimpleNamespace


class Constants(SimpleNamespace):
    """By the names that they have in C++."""

    def replace(self, **values: object) -> "Constants":
        return Constants(**{**vars(self), **values})


@dataclass(frozen=True)
class Polynomial:
    """In x - centre, lowest degree first."""

    centre: float
    coefficients: tuple[float, ...]
