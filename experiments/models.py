"""The paper's networks."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from experiments.activations import Activation
from experiments.data.dataset import Dataset

# The float is the probability to keep a neuron.
Model = Callable[[Dataset, Activation, float], nn.Module]


def layers(sizes: Sequence[int], activation: Activation, keep: float) -> nn.Sequential:
    """Linear layers with unit-norm rows (section 3.1), with activation and dropout in between."""
    found: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        linear.weight.data = normalize(torch.randn_like(linear.weight))
        nn.init.zeros_(linear.bias)
        found += [linear, activation.module(), nn.Dropout(1 - keep)]
    return nn.Sequential(*found[:-2])


def classifier(*hidden: int) -> Model:
    def build(data: Dataset, activation: Activation, keep: float) -> nn.Module:
        return layers([*data.input_shape(), *hidden, data.classes], activation, keep)

    return build


def autoencoder(*hidden: int) -> Model:
    def build(data: Dataset, activation: Activation, keep: float) -> nn.Module:
        return layers([*data.input_shape(), *hidden, *data.input_shape()], activation, keep)

    return build


class GaussianNoise(nn.Module):
    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(self, x: Tensor) -> Tensor:
        return x + self.deviation * torch.randn_like(x) if self.training else x


def nine_layers(width: int = 96) -> Model:
    """Salimans and Kingma's (2016), as appendix B lists it; batch normalization after each layer.

    The first three layers have `width` channels, the others twice as many. The input is whitened.
    """

    def build(data: Dataset, activation: Activation, keep: float) -> nn.Module:
        def conv(inputs: int, outputs: int, size: int, padding: int) -> list[nn.Module]:
            layer = nn.Conv2d(inputs, outputs, size, padding=padding, bias=False)
            nn.init.xavier_uniform_(layer.weight)
            return [layer, nn.BatchNorm2d(outputs), activation.module()]

        def stage(inputs: int, outputs: int) -> list[nn.Module]:
            convs = [conv(c, outputs, 3, 1) for c in (inputs, outputs, outputs)]
            return [*sum(convs, []), nn.MaxPool2d(2), nn.Dropout(1 - keep)]

        wide = 2 * width
        head = nn.Linear(wide, data.classes, bias=False)
        nn.init.xavier_uniform_(head.weight)
        return nn.Sequential(
            GaussianNoise(0.15),
            *stage(data.input_shape()[0], width),
            *stage(width, wide),
            *conv(wide, wide, 3, 0),
            *conv(wide, wide, 1, 0),
            *conv(wide, wide, 1, 0),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            head,
            nn.BatchNorm1d(data.classes),
        )

    return build


def he_conv(inputs: int, outputs: int, size: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=bias)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class ResidualBlock(nn.Module):
    """Convolution, activation, convolution, activation, batch normalization (section 3.5)."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation: Activation, keep: float
    ) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            he_conv(inputs, outputs, 3, stride),
            activation.module(),
            nn.Dropout(1 - keep),
            he_conv(outputs, outputs, 3),
            activation.module(),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else he_conv(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.residual(x)


def wide_resnet(depth: int = 40, widening: int = 4) -> Model:
    """Zagoruyko and Komodakis's (2016), with the paper's blocks and the authors' script's stem."""

    def build(data: Dataset, activation: Activation, keep: float) -> nn.Module:
        stem = he_conv(data.input_shape()[0], 16, 3, bias=False)
        found = [stem, nn.BatchNorm2d(16), activation.module(), nn.BatchNorm2d(16)]
        inputs = 16
        for group in range(3):
            outputs = 16 * 2**group * widening
            for block in range((depth - 4) // 6):
                stride = 2 if group and not block else 1
                found.append(ResidualBlock(inputs, outputs, stride, activation, keep))
                inputs = outputs
        head = nn.Linear(inputs, data.classes)
        nn.init.kaiming_normal_(head.weight, nonlinearity="linear")
        nn.init.zeros_(head.bias)
        found += [nn.BatchNorm2d(inputs), activation.module()]
        return nn.Sequential(*found, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)

    return build
