"""Gated linear units."""

from torch import Tensor

from gelu_kernels import functional
from gelu_kernels.functional.arguments import gate_for
from gelu_kernels.nn.module import Module


class GEGLU(Module):
    r"""GELU-gated linear unit, ``gelu(gate) * up``, of the halves of the last dimension.

    The halves are ``gate`` and ``up``, in that order. One pass.

    It has no weights: it goes between the ``nn.Linear`` that computes both halves and the next one.

    Args:
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.

    Shape: ``(*, 2 n)`` to ``(*, n)``; float64, float32, float16 or bfloat16.

    Raises:
        ValueError: ``approximate`` is unknown.
        TypeError: in the call, the input has another dtype, or is neither strided nor jagged.
        ValueError: in the call, the last dimension is odd, or there is none.

    Accuracy: as :func:`gelu_kernels.functional.geglu`.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> import torch
    >>> GEGLU()(torch.tensor([-1.0, 0.0, 1.0, 2.0, 2.0, 2.0]))
    tensor([-0.3173,  0.0000,  1.6827])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        gate_for(type(self).__name__, approximate)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.geglu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SwiGLU(Module):
    r"""SiLU-gated linear unit, ``silu(gate) * up``, of the halves of the last dimension.

    The halves are ``gate`` and ``up``, in that order. One pass. It has no weights, like
    :class:`GEGLU`.

    Shape: ``(*, 2 n)`` to ``(*, n)``; float64, float32, float16 or bfloat16.

    Raises (in the call):
        TypeError: the input has another dtype, or is neither strided nor jagged.
        ValueError: the last dimension is odd, or there is none.

    Accuracy: as :func:`gelu_kernels.functional.swiglu`.

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), section 2.

    >>> import torch
    >>> SwiGLU()(torch.tensor([-1.0, 0.0, 1.0, 2.0, 2.0, 2.0]))
    tensor([-0.5379,  0.0000,  1.4621])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.swiglu(input)
