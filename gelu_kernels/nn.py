"""The operators as modules.

Formulas: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. ``approximate``
chooses among them as in :func:`gelu_kernels.functional.gelu`.
"""

import torch
from torch import Tensor, nn

from gelu_kernels import functional


class GELU(nn.Module):
    r"""Element by element, in place of ``torch.nn.GELU``: :math:`x \, \Phi(x)` for
    ``approximate="none"``, :math:`x \, (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2` for
    ``"tanh"``, :math:`x \, \sigma(1.702 x)` for ``"sigmoid"``.

    Args:
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: there is no such ``approximate``.

    Accuracy: float16 and bfloat16 correctly rounded; float32 and float64 within 4 units in the
    last place; the derivative as well.

    >>> GELU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class BiasGELU(nn.Module):
    """``gelu(input + bias)`` in one pass, with a learnable bias that starts at zero.

    For a layer that leaves its bias to the activation; :class:`LinearGELU` is the two together.

    Args:
        features: the length of the bias.
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.
        device, dtype: of the bias.

    Shape: ``(*, features)``, in and out, with at least one dimension; float64, float32, float16
    or bfloat16, the same as the bias unless under autocast.

    Raises (in the call):
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``approximate`` is not as above.

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
    ) -> None:
        super().__init__()
        self.features = features
        self.approximate = approximate
        self.bias = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.bias_gelu(input, self.bias, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"{self.features}, approximate={self.approximate!r}"


class LinearGELU(nn.Linear):
    """``nn.Linear`` followed by :class:`GELU`, with bias and GELU in one pass.

    Initialisation and state dict are as in ``nn.Linear``: a checkpoint loads either way.

    Args:
        in_features, out_features: the sizes of the last dimension, in and out.
        bias: whether there is one.
        device, dtype: of weight and bias, in the place where ``nn.Linear`` takes them.
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.

    Shape: ``(*, in_features)`` to ``(*, out_features)``; float64, float32, float16 or bfloat16,
    the same as the weight unless under autocast.

    Raises (in the call):
        TypeError, RuntimeError: a dtype or layout is not as above.
        ValueError, RuntimeError: a shape, a device or ``approximate`` is not as above.

    Accuracy: as :class:`GELU` for the sum of product and bias. In 16 bits the product is
    rounded, the sum is not.

    >>> layer = LinearGELU(20, 30)
    >>> layer(torch.randn(128, 20)).shape
    torch.Size([128, 30])
    >>> nn.Linear(20, 30).load_state_dict(layer.state_dict())
    <All keys matched successfully>
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        approximate: str = "none",
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        product = nn.functional.linear(input, self.weight)
        if self.bias is None:
            return functional.gelu(product, approximate=self.approximate)
        return functional.bias_gelu(product, self.bias, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, approximate={self.approximate!r}"


class GEGLU(nn.Module):
    r"""The gated linear unit of a GELU: ``gelu(gate) * up`` for the halves ``gate`` and ``up`` of
    the last dimension, in that order, in one pass.

    It has no weights: it goes between one ``nn.Linear`` that makes both halves and the next.

    Args:
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.

    Shape: ``(*, 2 n)`` to ``(*, n)``; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: the last dimension is odd, or there is none; ``approximate`` is none of the
            three.

    Accuracy: as :func:`gelu_kernels.functional.geglu`.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> GEGLU()(torch.tensor([-1.0, 0.0, 1.0, 2.0, 2.0, 2.0]))
    tensor([-0.3173,  0.0000,  1.6827])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.geglu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SOIMap(nn.Module):
    r"""In training the stochastic SOI map, :math:`x \, m` with
    :math:`m \sim \operatorname{Bernoulli}(F(x))`; in evaluation its mean, the gate
    :math:`x \, F(x)`.

    Args:
        gate: the distribution function F, by the name of its gate: ``"normal"`` for :math:`\Phi`;
            ``"normal_tanh"`` for :math:`(1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2`;
            ``"logistic_1702"`` for :math:`\sigma(1.702 x)`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is not strided.
        ValueError: there is no such ``gate``.

    Accuracy: the probability of m = 1 is within 2e-6 of F(x), as in
    :func:`gelu_kernels.functional.soi_map`; in evaluation as :class:`GELU`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), sections 2 and 4.

    >>> layer = SOIMap()
    >>> layer(torch.tensor([-10.0, 10.0]))
    tensor([ 0., 10.])
    >>> layer.eval()(torch.tensor([-1.0, 1.0]))
    tensor([-0.1587,  0.8413])
    """

    def __init__(self, gate: str = "normal") -> None:
        super().__init__()
        self.gate = gate

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            return functional.soi_map(input, gate=self.gate)
        return torch.ops.gelu_kernels.fused_gate(input, gate=self.gate)

    def extra_repr(self) -> str:
        return f"gate={self.gate!r}"
