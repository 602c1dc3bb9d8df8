"""Linear layers fused with the gate before or after them."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional
from gelu_kernels.functional.arguments import check_save, gate_for, gate_name
from gelu_kernels.nn.gate import save_repr
from gelu_kernels.nn.module import Module


class LinearParameters(Module):
    """The parameters of ``nn.Linear``, with the same names and initialisation.

    Not a subclass of ``nn.Linear``: tools that adapt, quantise or replace every ``nn.Linear``
    assume that it computes ``x W^T + b``, and would drop the gate.
    """

    weight: nn.Parameter
    bias: nn.Parameter  # as type checkers see nn.Linear's, which may be None too

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool,
        **placed: torch.device | torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features, **placed))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_features, **placed)) if bias else None
        )
        LinearParameters.reset_parameters(self)  # a subclass has not yet made its own parameters

    def reset_parameters(self) -> None:
        nn.Linear.reset_parameters(self)

    def extra_repr(self) -> str:
        return nn.Linear.extra_repr(self)


class LinearGELU(LinearParameters):
    """``nn.Linear`` followed by GELU, with bias add and GELU in one pass.

    Initialisation and state dict are as in ``nn.Linear``: either loads the other's checkpoint.

    Args:
        in_features, out_features: the sizes of the last dimension, in and out.
        bias: whether to add a learnable bias.
        device, dtype: of weight and bias, in the positions where ``nn.Linear`` takes them.
        approximate: ``"none"``, ``"tanh"`` or ``"sigmoid"``.
        save, dither: as for :func:`gelu_kernels.functional.gelu`.

    Shape: ``(*, in_features)`` to ``(*, out_features)``; float64, float32, float16 or bfloat16,
    the same as the weight unless under autocast.

    Raises:
        ValueError: ``approximate``, ``save`` or ``dither`` is not as above.
        TypeError, ValueError, RuntimeError: in the call, a dtype, layout, shape or device is not as
            above.

    Accuracy: as :class:`GELU` for the sum of product and bias. In 16 bits the product is rounded
    before the bias is added; the sum is not.

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
        save: str | None = None,
        dither: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        gate_for(type(self).__name__, approximate)
        check_save(type(self).__name__, save, dither)
        self.approximate = approximate
        self.save = save
        self.dither = dither

    def forward(self, input: Tensor) -> Tensor:
        product = nn.functional.linear(input, self.weight)
        options = {"approximate": self.approximate, "save": self.save, "dither": self.dither}
        if self.bias is None:
            return functional.gelu(product, **options)
        return functional.bias_gelu(product, self.bias, **options)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, approximate={self.approximate!r}{save_repr(self)}"


class GateLinear(LinearParameters):
    """``nn.Linear`` of ``gate(input + gate_bias)``; only ``input`` is saved for backward.

    It goes after the ``nn.Linear`` that computes the hidden layer, and can add the bias of that
    layer as ``gate_bias``.

    Args:
        in_features, out_features, bias, device, dtype: as for ``nn.Linear``.
        gate: the name of the gate, as for :func:`gelu_kernels.functional.gate`.
        gate_bias: whether to add a learnable ``gate_bias``, which starts at zero.

    Shape: ``(*, in_features)`` to ``(*, out_features)``; float64, float32, float16 or bfloat16,
    the same as the weight unless under autocast.

    Raises:
        ValueError: ``gate`` is unknown.
        TypeError, ValueError: in the call, a dtype, layout, shape or device is not as above.

    Accuracy, memory, source: as :func:`gelu_kernels.functional.gate_linear`.

    Initialisation and, without ``gate_bias``, the state dict are as in ``nn.Linear``.

    >>> layer = GateLinear(30, 20, gate="silu")
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
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        gate_name(type(self).__name__, gate)
        self.gate = gate
        self.gate_bias = (
            nn.Parameter(torch.zeros(in_features, device=device, dtype=dtype))
            if gate_bias
            else None
        )

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.gate_bias is not None:
            nn.init.zeros_(self.gate_bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.gate_linear(
            input, self.weight, self.bias, gate_bias=self.gate_bias, gate=self.gate
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate={self.gate!r}, gate_bias={self.gate_bias is not None}"


class GLULinear(LinearParameters):
    """``nn.Linear`` of ``glu(input, up)``; only ``input`` and ``up`` are saved for backward.

    Args:
        in_features, out_features, bias, device, dtype: as for ``nn.Linear``.
        gate, limit, up_offset: as for :func:`gelu_kernels.functional.glu`.

    Shape: two tensors ``(*, in_features)``, or one ``(*, 2 in_features)`` with both as its halves,
    to ``(*, out_features)``; float64, float32, float16 or bfloat16, the same as the weight unless
    under autocast.

    Raises:
        ValueError: ``gate`` is unknown.
        TypeError, ValueError: in the call, a dtype, layout, shape or device, ``limit`` or
            ``up_offset`` is not as above.

    Accuracy, memory, source: as :func:`gelu_kernels.functional.glu_linear`.

    Initialisation and state dict are as in ``nn.Linear``.

    >>> layer = GLULinear(30, 20, gate="silu")
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
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        gate_name(type(self).__name__, gate)
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
