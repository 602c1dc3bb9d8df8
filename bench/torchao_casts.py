"""torchao's casts in blocks of 128 after this package's passes, for NVIDIA GPUs: what such results
take without a fused cast."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from bench.quantized_passes import Inputs
from bench.quantized_recipes import Recipe
from gelu_kernels import functional

ops = torch.ops.gelu_kernels
# What is cast, and other results.
RESULTS: dict[str, Callable[[Inputs], tuple[list[Tensor], list[Tensor]]]] = {
    "gate forward": lambda of: ([functional.gelu(of.x)], []),
    "GLU forward": lambda of: ([functional.swiglu(of.x, of.up)], []),
    "gate backward with a bias": lambda of: split(
        ops.gate_backward_bias(of.dy, of.x, of.up[0], "normal"), 1
    ),
    "GLU backward": lambda of: split(
        ops.glu_backward(of.dy, of.x, of.up, None, "logistic", None, 0.0), 2
    ),
}


def split(results: tuple[Tensor, ...], count: int) -> tuple[list[Tensor], list[Tensor]]:
    return list(results[:count]), list(results[count:])


def chain(name: str, recipe: Recipe) -> Callable[[Inputs], list[object]] | None:
    """None where torchao is missing or has no such recipe. Its first call tries 45 configurations
    of each kernel, for half a minute."""
    is_there = recipe.scaling == "BlockWise1x128" and recipe.mode == "amax" and name in RESULTS
    if not is_there or not find_spec("torchao"):
        return None
    kernels = import_module("torchao.prototype.blockwise_fp8_training.kernels")
    along = {
        "row": kernels.triton_fp8_blockwise_act_quant_lhs,
        "column": kernels.triton_fp8_blockwise_act_quant_transposed_lhs,
    }
    casts = list(along.values()) if recipe.along == "both" else [along[recipe.along]]
    return partial(run, RESULTS[name], casts)


def run(
    results: Callable[[Inputs], tuple[list[Tensor], list[Tensor]]],
    casts: list[Callable[[Tensor], object]],
    inputs: Inputs,
) -> list[object]:
    quantised, others = results(inputs)
    return [cast(y) for y in quantised for cast in casts] + others
