"""The coefficients of csrc/gates/coefficients, written by the same programs (fit/)."""

from dataclasses import dataclass
from types import SimpleNamespace


class Constants(SimpleNamespace):
    """Constants, under their C++ names."""

    def replace(self, **values: object) -> "Constants":
        return Constants(**{**vars(self), **values})


@dataclass(frozen=True)
class Polynomial:
    """A polynomial in x - centre, lowest degree first."""

    centre: float
    coefficients: tuple[float, ...]
