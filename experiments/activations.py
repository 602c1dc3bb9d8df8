"""The nonlinearities that the experiments compare, by their names on the command line."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

import gelu_kernels.nn as ours


class Exponential(nn.Module):
    """Keeps a scale positive while it is learnt."""

    def forward(self, logarithm: Tensor) -> Tensor:
        return logarithm.exp()

    def right_inverse(self, scale: Tensor) -> Tensor:
        return torch.log(scale)


def learnt_cdf_gate() -> nn.Module:
    """x F((x - loc)/scale), with a location and a scale for each layer, from 0 and 1 on."""
    gate = ours.CDFGate("normal")
    register_parametrization(gate, "scale", Exponential())
    return gate


Activation = Callable[[], nn.Module]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": ours.GELU,
    "gelu_tanh": partial(ours.GELU, "tanh"),  # the paper's formula in all its experiments
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": ours.SiLU,
    "lalu": ours.LaLU,
    "cauchy": ours.CauchyGate,
    "soi": ours.SOIMap,
    "cdf_gate": learnt_cdf_gate,
}
LABELS = {
    "gelu": "GELU",
    "gelu_tanh": "GELU, tanh",
    "relu": "ReLU",
    "elu": "ELU",
    "silu": "SiLU",
    "lalu": "LaLU",
    "cauchy": "Cauchy gate",
    "soi": "SOI map",
    "cdf_gate": "CDF gate, learnt",
}
