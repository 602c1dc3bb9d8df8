"""The MLP, the data and the training that mxfp8_mlp.py and fp8_mlp.py share.

    y = swiglu(x W_gate, x W_up) W_down

W_gate and W_up are the halves of one weight. Each product of a step, two forward and two or three
backward, takes operands in eight bits (e4m3), with a scale for each block along the dimension that
the product sums over. The gradient of a weight sums over the batch, another product over a row: so
the hidden layer and its gradient are wanted along the rows and along the columns.
``quantized_swiglu`` and ``quantized_glu_backward`` make both from one read. The optimizer's weights
are float32.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable
from torch.nn.functional import cross_entropy, pad

from gelu_kernels import functional
from gelu_kernels.functional import Quantized

# Multiples of any block: 5 of 1797 digits are left out.
BATCH, TRAINING, TEST = 128, 1408, 384
CLASSES = 10


class Recipe(NamedTuple):
    """How operands become eight bits, and how they are multiplied."""

    quantised: Callable[[Tensor], Quantized]  # along the rows, for a tensor that no gate makes
    product: Callable[[Quantized, Quantized], Tensor]  # of a and the transpose of b
    options: Callable[[Tensor], dict[str, Any]]  # of the fused functions, for a tensor's device


def in_blocks(t: Tensor, block: int, least: int) -> tuple[Tensor, Tensor]:
    """Finite numbers in blocks along the rows, and the exponents of their scales, plus 127."""
    blocks = t.float().unflatten(-1, (-1, block))
    amax = blocks.abs().amax(-1)
    # The exponent of amax / 448, rounded up (the mode "rceil"): 448 = 1.75 * 2^8.
    exponents = ((amax.view(torch.int32) + 0x1FFFFF >> 23) - 8).clamp(min=least)
    inverse = (254 - exponents << 23).view(torch.float32)  # of 2^(exponents - 127)
    data = (blocks * inverse.unsqueeze(-1)).to(torch.float8_e4m3fn)
    return data.flatten(-2).contiguous(), exponents


class EightBitMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, gate_up: Tensor, down: Tensor, recipe: Recipe
    ) -> Tensor:
        quantised, product, options = recipe
        z = product(quantised(x), quantised(gate_up))
        hidden, hidden_columns = functional.quantized_swiglu(z, along="both", **options(z))
        ctx.save_for_backward(z, gate_up, down, *quantised(x.t()), *hidden_columns)
        ctx.recipe = recipe  # type: ignore[attr-defined]
        return product(hidden, quantised(down))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: BackwardCFunction, dy: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor, None]:
        quantised, product, options = ctx.recipe  # type: ignore[attr-defined]
        z, gate_up, down, *columns = list(ctx.saved_tensors)  # typed as one tensor
        x_columns, hidden_columns = Quantized(*columns[:2]), Quantized(*columns[2:])
        dhidden = product(quantised(dy), quantised(down.t()))
        dz, dz_columns = functional.quantized_glu_backward(
            dhidden, z, gate="logistic", along="both", **options(z)
        )
        dx = product(dz, quantised(gate_up.t())) if ctx.needs_input_grad[0] else None
        return dx, product(dz_columns, x_columns), product(quantised(dy.t()), hidden_columns), None


def bfloat16_mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    hidden = functional.swiglu(x.bfloat16() @ gate_up.bfloat16().t())
    return hidden @ down.bfloat16().t()


@cache
def digits(device: torch.device) -> tuple[Tensor, ...]:
    """Images and labels, for training and for the test."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16, labels, train_size=TRAINING, test_size=TEST, stratify=labels, random_state=0
    )
    x, x_test = (torch.tensor(part, dtype=torch.float32, device=device) for part in parts[:2])
    y, y_test = (torch.tensor(part, device=device) for part in parts[2:])
    return x, y, x_test, y_test


def train(
    model: Callable[..., Tensor],
    shapes: list[tuple[int, ...]],
    epochs: int,
    seed: int,
    device: torch.device,
) -> Iterator[tuple[float, float]]:
    """The mean loss of each epoch, and the accuracy on the test's digits after it.

    The model is a function of images and of weights of these shapes. Images get zeros where the
    first weight takes more pixels, and there may be more logits than classes.
    """
    x, y, x_test, y_test = digits(device)
    x, x_test = (pad(images, (0, shapes[0][-1] - images.size(1))) for images in (x, x_test))
    random = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, generator=random) / shape[-1] ** 0.5 for shape in shapes]
    weights = [weight.to(device).requires_grad_() for weight in weights]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for _ in range(epochs):
        losses = []
        for batch in torch.randperm(TRAINING, generator=random).to(device).split(BATCH):
            logits = model(x[batch], *weights)[:, :CLASSES]
            loss = cross_entropy(logits.float(), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            predicted = model(x_test, *weights)[:, :CLASSES].argmax(1)
        yield torch.stack(losses).mean().item(), (predicted == y_test).float().mean().item()
