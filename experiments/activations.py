"""The activations that the experiments compare, by their names on the command line."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

import gelu_kernels.nn as ours


class Exponential(nn.Module):
    """Keeps a learnt scale positive."""

    def forward(self, logarithm: Tensor) -> Tensor:
        return logarithm.exp()

    def right_inverse(self, scale: Tensor) -> Tensor:
        return torch.log(scale)


def learnt_cdf_gate() -> nn.Module:
    """x F((x - loc)/scale), with a learnt location and scale that start at 0 and 1."""
    gate = ours.CDFGate("normal")
    register_parametrization(gate, "scale", Exponential())
    return gate


class Activation(NamedTuple):
    label: str  # in tables and figures
    module: Callable[[], nn.Module]


ACTIVATIONS = {
    "gelu": Activation("GELU", ours.GELU),
    # The paper's formula in all its experiments.
    "gelu_tanh": Activation("GELU, tanh", partial(ours.GELU, "tanh")),
    "relu": Activation("ReLU", nn.ReLU),
    "elu": Activation("ELU", nn.ELU),
    "silu": Activation("SiLU", ours.SiLU),
    "lalu": Activation("LaLU", ours.LaLU),
    "cauchy": Activation("Cauchy gate", ours.CauchyGate),
    "soi": Activation("SOI map", ours.SOIMap),
    "cdf_gate": Activation("CDF gate, learnt", learnt_cdf_gate),
}
