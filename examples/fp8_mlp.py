"""Trains an MLP and a mixture of experts on real handwritten digits with all products in FP8, in
blocks of 128 numbers, and both in bfloat16.

The MLP is that of eight_bit_mlp.py. The experts are gpt-oss's: clamped, and with the router's
weights; each gets the rows of its own images, a group. ``quantized_glu`` and its backward return
the layouts of the products that follow, with blocks that start anew in each group.

On Hopper ``torch.nn.functional.scaled_mm`` multiplies. Elsewhere the products are emulated: the
same numbers, multiplied in float32.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple

import torch
from eight_bit_mlp import EightBitMLP, bfloat16_mlp, train
from fp8_blocks import (
    BLOCK,
    OPTIONS,
    RECIPE,
    columns_of_groups,
    product,
    quantised,
    rows_of_groups,
)
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable
from torch.nn.functional import grouped_mm, pad

from gelu_kernels import functional
from gelu_kernels.functional import Quantized

# Multiples of 128: there are more pixels than images have, and more logits than classes.
PIXELS, HIDDEN, LOGITS = 128, 256, 128
EXPERTS, CHOSEN, EXPERT_HIDDEN = 4, 2, 128
EXPERT: dict[str, Any] = {"gate": "logistic_1702", "limit": 7.0, "up_offset": 1.0}


def of_groups(a: Quantized, weights: Tensor, ends: list[int]) -> Tensor:
    """The product of each group of rows of a and the transpose of its expert's weight.

    Of torch 2.13, ``scaled_grouped_mm`` takes a scale for each row on Hopper, and MXFP8 on
    Blackwell, but no blocks of 128. So each group has a product of its own, whose size the host
    must know. The quantised functions read the offsets on the device alone.
    """
    groups = zip(rows_of_groups(a, ends), weights, pairwise([0, *ends]), strict=True)
    parts = [product(rows, quantised(w))[: end - start] for rows, w, (start, end) in groups]
    return torch.cat(parts)


def gradients_of_weights(dy: Quantized, x: Quantized, ends: list[int]) -> Tensor:
    """Of products of groups of rows, from both sides' columns."""
    groups = zip(columns_of_groups(dy, ends), columns_of_groups(x, ends), strict=True)
    return torch.stack([product(*pair) for pair in groups])


def quantised_columns(t: Tensor, ends: list[int]) -> Quantized:
    """Along the columns of each group, as the quantised functions return them: whole blocks one
    after the other."""
    parts = torch.tensor_split(t.t(), ends[:-1], 1)
    groups = [quantised(pad(part, (0, -part.size(1) % BLOCK))) for part in parts]
    data = [group.data[:, : part.size(1)] for group, part in zip(groups, parts, strict=True)]
    scales = torch.cat([group.scale.t() for group in groups])
    return Quantized(torch.cat(data, 1), scales.t())


class FP8Experts(torch.autograd.Function):
    """Rows in groups with these ends, each row with a weight."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, offsets: Tensor
    ) -> Tensor:
        ends = offsets.tolist()  # waits for the GPU
        z = of_groups(quantised(x), gate_up, ends)
        hidden, hidden_columns = functional.quantized_glu(
            z, weight=weight, offsets=offsets, along="both", **EXPERT, **OPTIONS
        )
        saved = *quantised_columns(x, ends), *hidden_columns
        ctx.save_for_backward(z, gate_up, down, weight, offsets, *saved)
        ctx.ends = ends  # type: ignore[attr-defined]
        return of_groups(hidden, down, ends)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: BackwardCFunction, dy: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        z, gate_up, down, weight, offsets, *columns = list(ctx.saved_tensors)
        x_columns, hidden_columns = Quantized(*columns[:2]), Quantized(*columns[2:])
        ends = ctx.ends  # type: ignore[attr-defined]
        dhidden = of_groups(quantised(dy), down.transpose(1, 2), ends)
        (dz, dz_columns), dweight = functional.quantized_glu_backward(
            dhidden, z, weight=weight, offsets=offsets, along="both", **EXPERT, **OPTIONS
        )
        dx = of_groups(dz, gate_up.transpose(1, 2), ends)
        dgate_up = gradients_of_weights(dz_columns, x_columns, ends)
        ddown = gradients_of_weights(quantised_columns(dy, ends), hidden_columns, ends)
        return dx, dgate_up, ddown, dweight, None


def bfloat16_experts(
    x: Tensor, gate_up: Tensor, down: Tensor, weight: Tensor, offsets: Tensor
) -> Tensor:
    z = grouped_mm(x, gate_up.bfloat16().transpose(1, 2), offs=offsets)
    hidden = functional.glu(z, weight=weight, **EXPERT)
    return grouped_mm(hidden, down.bfloat16().transpose(1, 2), offs=offsets)


def mixture(
    experts: Callable[..., Tensor], x: Tensor, gate_up: Tensor, down: Tensor, router: Tensor
) -> Tensor:
    """The sum of the experts that the router chooses for each image."""
    weights, chosen = (x @ router.t()).softmax(-1).topk(CHOSEN)
    by_expert = chosen.flatten().argsort(stable=True)
    image = by_expert // CHOSEN
    numbers = torch.arange(EXPERTS, device=x.device).unsqueeze(1)
    offsets = (chosen.flatten() == numbers).sum(1).cumsum(0, dtype=torch.int32)
    weight = weights.flatten()[by_expert].bfloat16()
    y = experts(x[image].bfloat16(), gate_up, down, weight, offsets)
    return x.new_zeros(x.size(0), LOGITS).index_add(0, image, y.float())


class Model(NamedTuple):
    shapes: list[tuple[int, ...]]  # of the weights
    fp8: Callable[..., Tensor]
    bfloat16: Callable[..., Tensor]


MODELS = {
    "MLP": Model(
        [(2 * HIDDEN, PIXELS), (LOGITS, HIDDEN)],
        lambda *tensors: EightBitMLP.apply(*tensors, RECIPE),
        bfloat16_mlp,
    ),
    "experts": Model(
        [
            (EXPERTS, 2 * EXPERT_HIDDEN, PIXELS),
            (EXPERTS, LOGITS, EXPERT_HIDDEN),
            (EXPERTS, PIXELS),
        ],
        lambda *tensors: mixture(FP8Experts.apply, *tensors),
        lambda *tensors: mixture(bfloat16_experts, *tensors),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition(",")[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", type=torch.device, help="default: a GPU if there is one")
    args = parser.parse_args()

    torch.set_num_threads(1)  # on a CPU, layers this small are no faster with more
    device = args.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, model in MODELS.items():
        ratios, apart = [], []
        for seed in range(args.seeds):
            (ours, right), (theirs, of_bfloat16) = (
                list(train(function, model.shapes, args.epochs, seed, device))[-1]
                for function in (model.fp8, model.bfloat16)
            )
            print(
                f"{name}, seed {seed}: FP8 loss {ours:.4f}, test {right:.2%}; "
                f"bfloat16 loss {theirs:.4f}, test {of_bfloat16:.2%}",
                flush=True,
            )
            ratios.append(ours / theirs)
            apart.append(right - of_bfloat16)
        print(
            f"{name}: the loss in FP8 is {min(ratios):.3f} to {max(ratios):.3f} times bfloat16's, "
            f"{mean(ratios):.3f} on average; test accuracy differs by {mean(apart):+.2%}"
        )


if __name__ == "__main__":
    main()
