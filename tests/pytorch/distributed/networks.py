"""Networks with our layers, and the same networks in plain PyTorch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, silu
from torch.special import ndtr

from gelu_kernels import nn as ours


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = ours.LinearGELU(8, 12, dtype=torch.float64)
        self.down = nn.Linear(12, 8, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))


class TorchMLP(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(gelu(linear(x, self.up.weight, self.up.bias)))


class Recomputing(ours.MLP):
    def __init__(self) -> None:
        super().__init__(8, 12, dtype=torch.float64)


class TorchRecomputing(Recomputing):
    def forward(self, x: Tensor) -> Tensor:
        return linear(gelu(self.up(x)), self.down.weight, self.down.bias)


class RecomputingGLU(ours.MLP):
    def __init__(self) -> None:
        super().__init__(8, 12, gate="logistic", glu=True, dtype=torch.float64)


class TorchRecomputingGLU(RecomputingGLU):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return linear(silu(gate) * up, self.down.weight, self.down.bias)


class AfterGate(nn.Module):
    """Layers that recompute the gate before them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 12, bias=False, dtype=torch.float64)
        self.middle = ours.GateLinear(12, 8, dtype=torch.float64, gate_bias=True)
        self.first = nn.Linear(8, 12, dtype=torch.float64)
        self.second = nn.Linear(8, 12, dtype=torch.float64)
        self.down = ours.GLULinear(12, 8, dtype=torch.float64)
        nn.init.normal_(self.middle.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.middle(self.up(x))
        return self.down(self.first(y), self.second(y))


class TorchAfterGate(AfterGate):
    def forward(self, x: Tensor) -> Tensor:
        middle, down = self.middle, self.down
        y = linear(gelu(self.up(x) + middle.gate_bias), middle.weight, middle.bias)
        return linear(gelu(self.first(y)) * self.second(y), down.weight, down.bias)


class Learnt(nn.Module):
    """Gates with one loc and scale, and with a loc and a scale for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, dtype=torch.float64)
        self.one = ours.CDFGate(loc=0.1, scale=2.0, dtype=torch.float64)
        self.each = ours.CDFGate(loc=-0.1, scale=1.5, num_parameters=8, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.each(self.linear(self.one(x)))


class TorchLearnt(Learnt):
    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x * ndtr((x - self.one.loc) / self.one.scale))
        return x * ndtr((x - self.each.loc) / self.each.scale)


def build(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()
