"""Gates, alone and after a bias."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional
from gelu_kernels.nn.module import Module


def what_is_saved(module: nn.Module) -> str:
    """For extra_repr; nothing by default."""
    if module.save is None:
        return ""
    return f", save={module.save!r}" + (", dither=True" if module.dither else "")


class _Gate(Module):
    def __init__(self, *, save: str | None = None, dither: bool = False) -> None:
        super().__init__()
        self.save = save
        self.dither = dither

    def extra_repr(self) -> str:
        return what_is_saved(self).removeprefix(", ")


class GELU(_Gate):
    r"""Element by element, in place of ``torch.nn.GELU``: :math:`x \, \Phi(x)` for
    ``approximate="none"``, :math:`x \, (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2` for
    ``"tanh"``, :math:`x \, \sigma(1.702 x)` for ``"sigmoid"``.

    Args:
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: there is no such ``approximate`` or ``save``, or ``dither`` without ``save``.

    Accuracy: float16 and bfloat16 correctly rounded; float32 and float64 within 4 units in the
    last place; the derivative as well.

    >>> GELU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(
        self, approximate: str = "none", *, save: str | None = None, dither: bool = False
    ) -> None:
        super().__init__(save=save, dither=dither)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(
            input, approximate=self.approximate, save=self.save, dither=self.dither
        )

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}{what_is_saved(self)}"


class BiasGELU(_Gate):
    """``gelu(input + bias)`` in one pass, with a learnable bias that starts at zero.

    For a layer that leaves its bias to the activation; :class:`gelu_kernels.nn.LinearGELU` is the
    two together.

    Args:
        features: the length of the bias.
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.
        device, dtype: of the bias.

    Shape: ``(*, features)``, in and out, with at least one dimension; float64, float32, float16
    or bfloat16, the same as the bias unless under autocast.

    Raises (in the call):
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``approximate``, ``save`` or ``dither`` is not as
            above.

    Accuracy: as :class:`GELU` for the sum, which is not rounded to 16 bits in between.

    >>> BiasGELU(3)(torch.tensor([-1.0, 0.0, 1.0])).detach()
    tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(
        self,
        features: int,
        *,
        approximate: str = "none",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        save: str | None = None,
        dither: bool = False,
    ) -> None:
        super().__init__(save=save, dither=dither)
        self.features = features
        self.approximate = approximate
        self.bias = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.bias_gelu(
            input, self.bias, approximate=self.approximate, save=self.save, dither=self.dither
        )

    def extra_repr(self) -> str:
        return f"{self.features}, approximate={self.approximate!r}{what_is_saved(self)}"


class SiLU(_Gate):
    r"""Element by element, in place of ``torch.nn.SiLU``: :math:`x \, \sigma(x)`.

    Args:
        inplace: False, as in ``torch.nn.SiLU`` by default. The gradient is computed of the input,
            so that one which is overwritten would have to be copied first.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        ValueError: ``inplace`` is True.
        TypeError: in the call, the input has another dtype, or is not strided.

    Accuracy: as :func:`gelu_kernels.functional.silu`.

    Source: Hendrycks and Gimpel (2016), section 2; Elfwing et al., "Sigmoid-Weighted Linear Units"
    (2017), section 2.

    >>> SiLU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """

    def __init__(
        self, inplace: bool = False, *, save: str | None = None, dither: bool = False
    ) -> None:
        super().__init__(save=save, dither=dither)
        if inplace:
            raise ValueError(
                "gelu_kernels.nn.SiLU: inplace must be False, got True: backward needs the input"
            )

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input, save=self.save, dither=self.dither)


class LaLU(_Gate):
    r"""Element by element, the gate of the Laplace distribution: :math:`x \, e^x / 2` for x < 0 and
    :math:`x \, (1 - e^{-x} / 2)` above.

    Args:
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: there is no such ``save``, or ``dither`` without ``save``.

    Accuracy: as :func:`gelu_kernels.functional.lalu`.

    Source: Hendrycks and Gimpel (2016), section 4.

    >>> LaLU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1839,  0.0000,  0.8161])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.lalu(input, save=self.save, dither=self.dither)


class CauchyGate(_Gate):
    r"""Element by element, the gate of the Cauchy distribution:
    :math:`x \, (1/2 + \arctan(x) / \pi)`.

    Args:
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: there is no such ``save``, or ``dither`` without ``save``.

    Accuracy: as :func:`gelu_kernels.functional.cauchy_gate`.

    Source: Hendrycks and Gimpel (2016), section 4.

    >>> CauchyGate()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2500,  0.0000,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.cauchy_gate(input, save=self.save, dither=self.dither)
