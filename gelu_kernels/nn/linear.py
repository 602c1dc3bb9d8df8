"""A linear layer after a gate or a gated linear unit, which keeps no result of these."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional


class GateLinear(nn.Linear):
    """``nn.Linear`` of ``gate(input + gate_bias)``, of which backward keeps ``input`` alone.

    It goes after the ``nn.Linear`` that makes the hidden layer, which may leave its bias to it.

    Args:
        in_features, out_features, bias, device, dtype: as for ``nn.Linear``.
        gate: the name of the gate, as for :func:`gelu_kernels.functional.gate`.
        gate_bias: whether there is a learnable ``gate_bias``; it starts at zero.

    Shape: ``(*, in_features)`` to ``(*, out_features)``; float64, float32, float16 or bfloat16,
    the same as the weight unless under autocast.

    Raises (in the call):
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``gate`` is not as above.

    Accuracy, source: as :func:`gelu_kernels.functional.gate_linear`.

    Initialisation and, without ``gate_bias``, the state dict are as in ``nn.Linear``. What wraps or
    replaces each ``nn.Linear`` (adapters, quantisation) would lose the gate.

    >>> layer = GateLinear(30, 20, gate="logistic")
    >>> layer(torch.randn(128, 30)).shape
    torch.Size([128, 20])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate: str = "normal",
        gate_bias: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.gate = gate
        self.gate_bias = (
            nn.Parameter(torch.zeros(in_features, device=device, dtype=dtype))
            if gate_bias
            else None
        )

    def forward(self, input: Tensor) -> Tensor:
        return functional.gate_linear(
            input, self.weight, self.bias, gate_bias=self.gate_bias, gate=self.gate
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate={self.gate!r}, gate_bias={self.gate_bias is not None}"


class GLULinear(nn.Linear):
    """``nn.Linear`` of ``glu(input, up)``, of which backward keeps ``input`` and ``up`` alone.

    Args:
        in_features, out_features, bias, device, dtype: as for ``nn.Linear``.
        gate, limit, up_offset: as for :func:`gelu_kernels.functional.glu`.

    Shape: two tensors ``(*, in_features)``, or one ``(*, 2 in_features)`` with both side by side,
    to ``(*, out_features)``; float64, float32, float16 or bfloat16, the same as the weight unless
    under autocast.

    Raises (in the call):
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device, ``gate``, ``limit`` or ``up_offset`` is not as above.

    Accuracy, source: as :func:`gelu_kernels.functional.glu_linear`.

    Initialisation and state dict are as in ``nn.Linear``; see :class:`GateLinear`.

    >>> layer = GLULinear(30, 20, gate="logistic")
    >>> layer(torch.randn(128, 60)).shape
    torch.Size([128, 20])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        gate: str = "normal",
        limit: float | None = None,
        up_offset: float = 0.0,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.gate = gate
        self.limit = limit
        self.up_offset = up_offset

    def forward(self, input: Tensor, up: Tensor | None = None) -> Tensor:
        return functional.glu_linear(
            input,
            up,
            self.weight,
            self.bias,
            gate=self.gate,
            limit=self.limit,
            up_offset=self.up_offset,
        )

    def extra_repr(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        up_offset = f", up_offset={self.up_offset}" if self.up_offset else ""
        return f"{super().extra_repr()}, gate={self.gate!r}{limit}{up_offset}"
