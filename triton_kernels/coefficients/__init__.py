"""The numbers of csrc/gates/coefficients, from the same programs."""

from importlib.util import find_spec
from types import SimpleNamespace

if find_spec("triton"):
    from triton.language import constexpr
else:  # Inductor writes C++ with these numbers too (gelu_kernels.compile)

    class constexpr:  # noqa: N801 (Triton's name)
        def __init__(self, value: object) -> None:
            self.value = value


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
