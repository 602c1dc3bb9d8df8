"""The SOI map."""

from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.functional.arguments import gate_name
from gelu_kernels.nn.module import Module


class SOIMap(Module):
    r"""Stochastic SOI map in training; its mean, the gate ``x F(x)``, in evaluation.

    In training the result is :math:`x \, m` with :math:`m \sim \operatorname{Bernoulli}(F(x))`.

    Args:
        gate: the name of the gate, which selects the distribution function F, as for
            :func:`gelu_kernels.functional.gate`.

    Shape: any, in and out; float64, float32, float16 or bfloat16.

    Raises:
        ValueError: ``gate`` is unknown.
        TypeError: in the call, the input has another dtype, or is neither strided nor jagged.

    Accuracy: the probability of m = 1 is within 2e-6 of F(x), as in
    :func:`gelu_kernels.functional.soi_map`; in evaluation as :class:`GELU`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), sections 2 and 4.

    >>> import torch
    >>> layer = SOIMap()
    >>> layer(torch.tensor([-10.0, 10.0]))
    tensor([ 0., 10.])
    >>> layer.eval()(torch.tensor([-1.0, 1.0]))
    tensor([-0.1587,  0.8413])
    """

    def __init__(self, gate: str = "normal") -> None:
        super().__init__()
        gate_name(type(self).__name__, gate)
        self.gate = gate

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            return functional.soi_map(input, gate=self.gate)
        return functional.gate(input, gate=self.gate)

    def extra_repr(self) -> str:
        return f"gate={self.gate!r}"
