"""A transformer's MLP: two linear layers with a gate or a gated linear unit between them."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional
from gelu_kernels.functional.arguments import gate_name, number
from gelu_kernels.nn.module import Module
from gelu_kernels.plain import is_plain_linear


class MLP(Module):
    """A transformer's MLP, ``down(gate(up(input)))``, or with ``glu`` ``down(gate(x) * y)``.

    x and y are the halves of ``up(input)``. Without dropout the gate's result is not saved for
    backward.

    Args:
        features: the last dimension of input and result.
        hidden: the last dimension of the hidden layer.
        gate: the name of the gate, as for :func:`gelu_kernels.functional.gate`: ``"silu"`` with
            ``glu=True`` for a Llama's MLP.
        glu: whether to use a gated linear unit.
        bias: whether the linear layers have biases.
        dropout: the probability of dropping an element of the hidden layer in training, after the
            gate and in its pass.
        device, dtype: of the parameters.

    Shape: ``(*, features)``, in and out; float64, float32, float16 or bfloat16, the same as the
    parameters unless under autocast.

    Raises:
        ValueError: ``gate`` is unknown, or ``dropout`` is not from 0 to 1.
        TypeError, ValueError, RuntimeError: in the call, a dtype, layout, shape or device is not as
            above.

    Accuracy: as :func:`gelu_kernels.functional.gate_linear` and
    :func:`gelu_kernels.functional.glu_linear`.

    ``up`` and ``down`` are ``nn.Linear``, with its initialisation and state dict; a state dict that
    has the halves of a ``glu`` apart, as ``gate.weight`` and ``up.weight``, loads too. A layer that
    is adapted, quantised, hooked or replaced is called as a module; if that is ``down``, the gate's
    result is saved too. A plain ``up`` (without ``glu``) has its bias added, and the bias gradient
    computed, in the pass of the gate.

    Source: Vaswani et al., "Attention Is All You Need" (2017), section 3.3; Shazeer, "GLU Variants
    Improve Transformer" (2020), section 2.

    >>> MLP(20, 80)(torch.randn(128, 20)).shape
    torch.Size([128, 20])
    >>> MLP(20, 56, gate="silu", glu=True, bias=False)
    MLP(
      gate='silu', glu=True
      (up): Linear(in_features=20, out_features=112, bias=False)
      (down): Linear(in_features=56, out_features=20, bias=False)
    )
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        gate: str = "normal",
        glu: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        gate_name("MLP", gate)
        self.gate = gate
        self.glu = glu
        self.dropout = number("MLP", "dropout", dropout)
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"MLP(): dropout must be from 0 to 1, got {dropout}")
        self.up = nn.Linear(features, 2 * hidden if glu else hidden, bias, device, dtype)
        self.down = nn.Linear(hidden, features, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        # A torch.fx graph calls the layers: they may no longer be plain when it runs.
        is_traced = isinstance(input, torch.fx.Proxy)
        fuses_up = not (is_traced or self.glu) and is_plain_linear(self.up)
        fuses_down = not is_traced and is_plain_linear(self.down)
        hidden = nn.functional.linear(input, self.up.weight) if fuses_up else self.up(input)
        gate_bias = self.up.bias if fuses_up else None
        if self.training and self.dropout:
            options = {"p": self.dropout, "gate": self.gate}
            if self.glu:
                return self.down(functional.glu_dropout(hidden, **options))
            return self.down(functional.gate_dropout(hidden, gate_bias, **options))
        if fuses_down:
            down = self.down.weight, self.down.bias
            if self.glu:
                return functional.glu_linear(hidden, None, *down, gate=self.gate)
            return functional.gate_linear(hidden, *down, gate_bias=gate_bias, gate=self.gate)
        if self.glu:
            return self.down(functional.glu(hidden, gate=self.gate))
        return self.down(functional.gate(hidden, gate_bias, gate=self.gate))

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        # Version 0.2 kept the bias of the hidden layer in down.
        if f"{prefix}down.gate_bias" in state_dict:
            state_dict[f"{prefix}up.bias"] = state_dict.pop(f"{prefix}down.gate_bias")
        for name in ("weight", "bias"):  # of halves that are apart
            gate, up = f"{prefix}gate.{name}", f"{prefix}up.{name}"
            if self.glu and gate in state_dict and up in state_dict:
                state_dict[up] = torch.cat([state_dict.pop(gate), state_dict[up]])
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        dropout = f", dropout={self.dropout}" if self.dropout else ""
        return f"gate={self.gate!r}" + (", glu=True" if self.glu else "") + dropout
