"""The numbers of csrc/gates/coefficients, from the same programs."""

from types import SimpleNamespace

from triton.language import constexpr


class Constants(SimpleNamespace):
    """By the names that they have in C++."""


class Polynomial(constexpr):
    """In x - centre, lowest degree first. A constexpr, to be an argument of a Triton function."""

    def __init__(self, centre: float, coefficients: tuple[float, ...]) -> None:
        super().__init__(SimpleNamespace(centre=centre, coefficients=coefficients))

    @property
    def centre(self) -> float:
        return self.value.centre

    @property
    def coefficients(self) -> tuple[float, ...]:
        return self.value.coefficients
