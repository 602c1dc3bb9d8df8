"""Trains an MLP on real handwritten digits with all products in MXFP8, and one in bfloat16.

    y = swiglu(x W_gate, x W_up) W_down

W_gate and W_up are the halves of one weight. Each product of a step, two forward and two or three
backward, takes operands in MXFP8: numbers in eight bits (e4m3), and for each 32 of them along the
dimension that the product sums over a scale, a power of two. The gradient of a weight sums over the
batch, another product over a row: so the hidden layer and its gradient are wanted along the rows
and along the columns. ``quantized_swiglu`` and ``quantized_glu_backward`` make both from one read.
The optimizer's weights are float32.

On a GPU of compute capability 10.0 or newer ``torch.nn.functional.scaled_mm`` multiplies. Nobody
has run that yet. Elsewhere the products are emulated: the same numbers, dequantised, in float32.
"""

import argparse
from collections.abc import Callable, Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable
from torch.nn.functional import ScalingType, SwizzleType, cross_entropy, pad, scaled_mm

from gelu_kernels import functional
from gelu_kernels.functional import Quantized

# All are multiples of 32: there are more logits than classes, and 5 of 1797 digits are left out.
PIXELS, HIDDEN, LOGITS, BATCH, TRAINING, TEST = 64, 256, 32, 128, 1408, 384
CLASSES = 10


def swizzle_for(t: Tensor) -> SwizzleType:
    """As the products on t's device take the scales."""
    has_mx = t.is_cuda and torch.cuda.get_device_capability(t.device) >= (10, 0)
    return SwizzleType.SWIZZLE_32_4_4 if has_mx else SwizzleType.NO_SWIZZLE


def swizzled(scales: Tensor) -> Tensor:
    """Tiles of 128 rows of 4, in which the rows r, r + 32, r + 64 and r + 96 are side by side."""
    rows, columns = scales.shape
    whole = pad(scales, (0, -columns % 4, 0, -rows % 128))
    tiles = whole.unflatten(0, (-1, 4, 32)).unflatten(-1, (-1, 4)).permute(0, 3, 2, 1, 4)
    return tiles.reshape(whole.size(0) // 4, -1)


def quantised(t: Tensor) -> Quantized:
    """Finite numbers in MXFP8 along the rows, for a tensor that no gate makes."""
    blocks = t.float().unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1)
    # The exponent of amax / 448, rounded up (the mode "rceil"): 448 = 1.75 * 2^8.
    exponents = ((amax.view(torch.int32) + 0x1FFFFF >> 23) - 8).clamp(min=0)
    inverse = (254 - exponents << 23).view(torch.float32)  # of 2^(exponents - 127)
    data = (blocks * inverse.unsqueeze(-1)).to(torch.float8_e4m3fn)
    scales = exponents.to(torch.uint8)
    if swizzle_for(t) != SwizzleType.NO_SWIZZLE:
        scales = swizzled(scales)
    return Quantized(data.flatten(-2).contiguous(), scales.contiguous().view(torch.float8_e8m0fnu))


def product(a: Quantized, b: Quantized) -> Tensor:
    """Of a and the transpose of b: it sums over their rows, along which their blocks lie."""
    swizzle = swizzle_for(a.data)
    if swizzle == SwizzleType.NO_SWIZZLE:
        x, y = (functional.dequantize(*operand, dtype=torch.float32) for operand in (a, b))
        return (x @ y.t()).bfloat16()
    kind = ScalingType.BlockWise1x32
    return scaled_mm(a.data, b.data.t(), a.scale, kind, b.scale, kind, swizzle, swizzle)


class MXFP8MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        z = product(quantised(x), quantised(gate_up))
        hidden, hidden_columns = functional.quantized_swiglu(
            z, along="both", mode="rceil", swizzle=swizzle_for(z)
        )
        ctx.save_for_backward(z, gate_up, down, *quantised(x.t()), *hidden_columns)
        return product(hidden, quantised(down))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: BackwardCFunction, dy: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        z, gate_up, down, *columns = list(ctx.saved_tensors)  # typed as one tensor
        x_columns, hidden_columns = Quantized(*columns[:2]), Quantized(*columns[2:])
        dhidden = product(quantised(dy), quantised(down.t()))
        dz, dz_columns = functional.quantized_glu_backward(
            dhidden, z, gate="logistic", along="both", mode="rceil", swizzle=swizzle_for(z)
        )
        dx = product(dz, quantised(gate_up.t())) if ctx.needs_input_grad[0] else None
        return dx, product(dz_columns, x_columns), product(quantised(dy.t()), hidden_columns)


def bfloat16_mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    hidden = functional.swiglu(x.bfloat16() @ gate_up.bfloat16().t())
    return hidden @ down.bfloat16().t()


MLPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "MXFP8": MXFP8MLP.apply,
    "bfloat16": bfloat16_mlp,
}


def digits(device: torch.device) -> list[Tensor]:
    """Images and labels, for training and for the test."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16, labels, train_size=TRAINING, test_size=TEST, stratify=labels, random_state=0
    )
    x, x_test = (torch.tensor(part, dtype=torch.float32, device=device) for part in parts[:2])
    y, y_test = (torch.tensor(part, device=device) for part in parts[2:])
    return [x, y, x_test, y_test]


def train(name: str, epochs: int, seed: int, device: torch.device) -> Iterator[tuple[float, float]]:
    """The mean loss of each epoch, and the accuracy on the test's digits after it."""
    mlp = MLPS[name]
    x, y, x_test, y_test = digits(device)
    random = torch.Generator().manual_seed(seed)
    shapes = (2 * HIDDEN, PIXELS), (LOGITS, HIDDEN)
    weights = [torch.randn(shape, generator=random) / shape[1] ** 0.5 for shape in shapes]
    weights = [weight.to(device).requires_grad_() for weight in weights]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for _ in range(epochs):
        losses = []
        for batch in torch.randperm(TRAINING, generator=random).to(device).split(BATCH):
            logits = mlp(x[batch], *weights)[:, :CLASSES]
            loss = cross_entropy(logits.float(), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            predicted = mlp(x_test, *weights)[:, :CLASSES].argmax(1)
        yield torch.stack(losses).mean().item(), (predicted == y_test).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=torch.device, help="default: a GPU if there is one")
    args = parser.parse_args()

    torch.set_num_threads(1)  # on a CPU, layers this small are no faster with more
    device = args.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs = [train(name, args.epochs, args.seed, device) for name in MLPS]
    ratio = float("nan")
    for epoch, results in enumerate(zip(*runs, strict=True), start=1):
        shown = (
            f"{name} loss {loss:.4f}, test {accuracy:.2%}"
            for name, (loss, accuracy) in zip(MLPS, results, strict=True)
        )
        print(f"epoch {epoch}: " + "; ".join(shown), flush=True)
        (ours, _), (theirs, _) = results
        ratio = ours / theirs
    print(f"the loss in MXFP8 is {ratio:.3f} times bfloat16's")


if __name__ == "__main__":
    main()
