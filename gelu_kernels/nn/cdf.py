"""Gates with a location and a scale."""

import torch
from torch import Tensor, nn

from gelu_kernels import functional
from gelu_kernels.functional.arguments import gate_name, number
from gelu_kernels.nn.module import Module


class CDFGate(Module):
    r"""Gate with a learnable location and scale, ``x F((x - loc) / scale)``.

    "Both are possibly parameters to optimize", says the GELU paper.

    Args:
        gate: the name of the gate, which selects the distribution function F, as for
            :func:`gelu_kernels.functional.gate`.
        loc, scale: the initial values.
        num_parameters: the length of the vectors ``loc`` and ``scale``, as in ``torch.nn.PReLU``:
            1, or the length of the input's last dimension.
        learnable: whether ``loc`` and ``scale`` are parameters; otherwise they are buffers.
        device, dtype: of ``loc`` and ``scale``.

    Shape: any, in and out; float64, float32, float16 or bfloat16, as ``dtype`` unless under
    autocast.

    Raises:
        ValueError: ``gate`` is unknown.
        TypeError, ValueError: in the call, a dtype, layout, shape or device is not as above;
            ``scale`` is negative (not checked on a GPU).

    Training can make ``scale`` negative; if that may happen, clamp it after each step.

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
        gate_name(type(self).__name__, gate)
        self.gate = gate
        self.num_parameters = num_parameters
        self.initial = {
            name: number("CDFGate", name, value) for name, value in (("loc", loc), ("scale", scale))
        }
        for name in self.initial:
            t = torch.empty(num_parameters, device=device, dtype=dtype)
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
        loc, scale = self.loc, self.scale
        if self.num_parameters == 1:  # one number, not a vector along a last dimension of 1
            loc, scale = loc[0], scale[0]
        return functional.cdf_gate(input, loc, scale, gate=self.gate)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        # Version 0.2 kept one number as a 0-d tensor.
        for name in self.initial:
            t = state_dict.get(f"{prefix}{name}")
            if isinstance(t, Tensor) and t.dim() == 0:
                state_dict[f"{prefix}{name}"] = t.unsqueeze(0)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        initial = ", ".join(f"{name}={number}" for name, number in self.initial.items())
        return f"gate={self.gate!r}, {initial}, num_parameters={self.num_parameters}"
