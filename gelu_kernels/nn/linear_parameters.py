"""The base class of the linear layers with a gate."""

import torch
from torch import nn

from gelu_kernels.nn.module import Module


class LinearParameters(Module):
    """The parameters of ``nn.Linear``, with its names and initialisation.

    It is not a subclass of ``nn.Linear``: tools that adapt, quantise or replace each ``nn.Linear``
    assume that it computes ``x W^T + b``, and would drop the gate.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        placed = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(out_features, in_features, **placed))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_features, **placed)) if bias else None
        )
        LinearParameters.reset_parameters(self)  # not a subclass's, whose parameters come later

    def reset_parameters(self) -> None:
        nn.Linear.reset_parameters(self)

    def extra_repr(self) -> str:
        return nn.Linear.extra_repr(self)
