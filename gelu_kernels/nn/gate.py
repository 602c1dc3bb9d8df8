"""Gates, alone and after a bias."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional
from gelu_kernels.functional.arguments import check_save, gate_for
from gelu_kernels.nn.module import Module


def save_repr(module: nn.Module) -> str:
    """The part of ``extra_repr`` about ``save`` and ``dither``; empty by default."""
    if module.save is None:
        return ""
    return f", save={module.save!r}" + (", dither=True" if module.dither else "")


class _Gate(Module):
    def __init__(self, *, save: str | None = None, dither: bool = False) -> None:
        super().__init__()
        check_save(type(self).__name__, save, dither)
        self.save = save
        self.dither = dither

    def extra_repr(self) -> str:
        return save_repr(self).removeprefix(", ")


class GELU(_Gate):
    r"""Gaussian error linear unit, ``x Φ(x)``; drop-in for ``torch.nn.GELU``.

    Args:
        approximate: ``"none"`` for :math:`x \, \Phi(x)`; ``"tanh"`` for
            :math:`x \, (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2`; ``"sigmoid"`` for
            :math:`x \, \sigma(1.702 x)`.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        TypeError: in the call, the input has another dtype, or is neither strided nor jagged.
        ValueError: ``approximate`` or ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: float16 and bfloat16 correctly rounded; float32 and float64 within 4 units in the
    last place; the derivative as well.

    >>> GELU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(
        self, approximate: str = "none", *, save: str | None = None, dither: bool = False
    ) -> None:
        super().__init__(save=save, dither=dither)
        gate_for(type(self).__name__, approximate)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(
            input, approximate=self.approximate, save=self.save, dither=self.dither
        )

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}{save_repr(self)}"


class BiasGELU(_Gate):
    """Fused bias add and GELU, ``gelu(input + bias)``, with a learnable bias that starts at zero.

    For use after a layer without a bias; :class:`gelu_kernels.nn.LinearGELU` combines the two.

    Args:
        features: the length of the bias.
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.
        device, dtype: of the bias.

    Shape: ``(*, features)``, in and out, with at least one dimension; float64, float32, float16
    or bfloat16, the same as the bias unless under autocast.

    Raises:
        ValueError: ``approximate``, ``save`` or ``dither`` is not as above.
        TypeError, ValueError: in the call, a dtype, layout, shape or device is not as above.

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
        gate_for(type(self).__name__, approximate)
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
        return f"{self.features}, approximate={self.approximate!r}{save_repr(self)}"


class SiLU(_Gate):
    r"""Sigmoid linear unit, ``x σ(x)``; drop-in for ``torch.nn.SiLU``.

    Args:
        inplace: must be False, the default of ``torch.nn.SiLU``. Backward needs the input, which
            would have to be copied before it is overwritten.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        TypeError, ValueError: as :class:`LaLU`; ``inplace`` is True.

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
    r"""Laplace linear unit: ``x F(x)``, with F the Laplace distribution function.

    It is :math:`x \, e^x / 2` for x < 0 and :math:`x \, (1 - e^{-x} / 2)` otherwise.

    Args:
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        TypeError: in the call, the input has another dtype, or is neither strided nor jagged.
        ValueError: ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: as :func:`gelu_kernels.functional.lalu`.

    Source: Hendrycks and Gimpel (2016), section 4.

    >>> LaLU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1839,  0.0000,  0.8161])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.lalu(input, save=self.save, dither=self.dither)


class CauchyGate(_Gate):
    r"""Gate of the Cauchy distribution, ``x (1/2 + arctan(x)/π)``, similar to the ELU.

    Args:
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        TypeError: in the call, the input has another dtype, or is neither strided nor jagged.
        ValueError: ``save`` is unknown, or ``dither`` is True without ``save``.

    Accuracy: as :func:`gelu_kernels.functional.cauchy_gate`.

    Source: Hendrycks and Gimpel (2016), section 4.

    >>> CauchyGate()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2500,  0.0000,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.cauchy_gate(input, save=self.save, dither=self.dither)
