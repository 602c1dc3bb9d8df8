"""The two linear layers of a transformer's MLP, and the gate or the gated linear unit between."""

import torch
from torch import Tensor, nn

from gelu_kernels.nn.linear import GateLinear, GLULinear


class MLP(nn.Module):
    """``down(gate(up(input)))``, of whose hidden layer backward keeps one tensor in place of two.

    With ``glu``, ``up`` makes two halves, x and up, and backward keeps two tensors of three:
    ``down(gate(x) * up)``.

    Args:
        features: the last dimension of input and result.
        hidden: the last dimension of the hidden layer.
        gate: the name of the gate, as for :func:`gelu_kernels.functional.gate`.
        glu: whether it is a gated linear unit.
        bias: whether the linear layers have biases. Without ``glu``, ``down`` has the bias of the
            hidden layer too, as its ``gate_bias``: it is added in the pass of the gate, and its
            gradient comes in the pass of the gate's gradient.
        device, dtype: of the parameters.

    Shape: ``(*, features)``, in and out; float64, float32, float16 or bfloat16, the same as the
    parameters unless under autocast.

    Raises (in the call):
        TypeError, RuntimeError: a dtype or layout is not as above.
        ValueError, RuntimeError: a shape, a device or ``gate`` is not as above.

    Accuracy: as :func:`gelu_kernels.functional.gate_linear` and
    :func:`gelu_kernels.functional.glu_linear`.

    Source: Vaswani et al., "Attention Is All You Need" (2017), section 3.3; Shazeer, "GLU Variants
    Improve Transformer" (2020), section 2.

    >>> MLP(20, 80)(torch.randn(128, 20)).shape
    torch.Size([128, 20])
    >>> MLP(20, 56, gate="logistic", glu=True, bias=False)
    MLP(
      (up): Linear(in_features=20, out_features=112, bias=False)
      (down): GLULinear(in_features=56, out_features=20, bias=False, gate='logistic')
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        placed = {"device": device, "dtype": dtype}
        if glu:
            self.up = nn.Linear(features, 2 * hidden, bias, **placed)
            self.down = GLULinear(hidden, features, bias, **placed, gate=gate)
        else:
            self.up = nn.Linear(features, hidden, bias=False, **placed)
            self.down = GateLinear(hidden, features, bias, **placed, gate=gate, gate_bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        return self.down(self.up(input))
