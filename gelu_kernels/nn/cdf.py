"""Gates with a location and a scale."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional


class CDFGate(nn.Module):
    r""":math:`x \, F((x - loc) / scale)` with ``loc`` and ``scale`` that are learnt: "both are
    possibly parameters to optimize", says the GELU paper.

    Args:
        gate: the distribution function F, by the name of its gate.
        loc, scale: what they start from.
        num_parameters: 1 for one ``loc`` and one ``scale``, or the length of the input's last
            dimension for as many.
        learnable: whether they are parameters; else they are buffers.
        device, dtype: of both.

    Shape: any, in and out; float64, float32, float16 or bfloat16, as ``dtype`` unless under
    autocast.

    Raises (in the call):
        TypeError: a dtype or layout is not as above.
        ValueError: a shape, a device or ``gate`` is not as above; ``scale`` is negative (on a GPU
            that is not seen).

    Nothing keeps ``scale`` from going below 0 while it is learnt; where that may happen, clamp it
    after a step.

    Accuracy: as :func:`gelu_kernels.functional.cdf_gate`.

    >>> CDFGate("normal", learnable=False)(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(
        self,
        gate: str = "normal",
        loc: float = 0.0,
        scale: float = 1.0,
        num_parameters: int = 1,
        learnable: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gate = gate
        self.num_parameters = num_parameters
        self.initial = {"loc": loc, "scale": scale}
        shape = () if num_parameters == 1 else (num_parameters,)
        for name in self.initial:
            t = torch.empty(shape, device=device, dtype=dtype)
            if learnable:
                self.register_parameter(name, nn.Parameter(t))
            else:
                self.register_buffer(name, t)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for name, number in self.initial.items():
                getattr(self, name).fill_(number)

    def forward(self, input: Tensor) -> Tensor:
        return functional.cdf_gate(input, self.loc, self.scale, gate=self.gate)

    def extra_repr(self) -> str:
        initial = ", ".join(f"{name}={number}" for name, number in self.initial.items())
        return f"gate={self.gate!r}, {initial}, num_parameters={self.num_parameters}"
