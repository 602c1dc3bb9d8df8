"""The MLPs of ``python -m bench.block``: what they compute, and what they save for backward."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gelu_kernels import functional

Hidden = Callable[[Tensor], Tensor]
Mlp = Callable[[Tensor, nn.Linear, nn.Linear], Tensor]


def after(hidden: Hidden) -> Mlp:
    return lambda x, up, down: down(hidden(up(x)))


def recomputed(function: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Mlp:
    return lambda x, up, down: function(up(x), down.weight, down.bias)


def checkpointed(mlp: Mlp) -> Mlp:
    return partial(checkpoint, mlp, use_reentrant=False)


def in_mxfp8(hidden: Hidden, quantised: Callable[[Tensor], functional.Quantized]) -> Mlp:
    """The product with `down` saves its input, the hidden layer, in MXFP8."""

    def mlp(x: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
        z = up(x.flatten(0, -2))
        y = hidden(z)
        with functional.save_quantized((y, quantised(z.detach()))):
            return down(y).view_as(x)

    return mlp


def torch_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


TORCH = {"gelu": after(partial(F.gelu, approximate="tanh")), "swiglu": after(torch_swiglu)}
OURS = {
    "gelu": after(partial(functional.gelu, approximate="tanh")),
    "swiglu": after(functional.swiglu),
}
MODES: dict[str, dict[str, Mlp]] = {
    "gelu": {
        "torch": TORCH["gelu"],
        "gelu_kernels": OURS["gelu"],
        "recompute": recomputed(partial(functional.gate_linear, gate="normal_tanh")),
        "8bit": after(partial(functional.gelu, approximate="tanh", save="8bit")),
        "4bit": after(partial(functional.gelu, approximate="tanh", save="4bit")),
        "mxfp8": in_mxfp8(
            partial(functional.gelu, approximate="tanh"),
            partial(functional.quantized_gate, gate="normal_tanh"),
        ),
        "checkpoint": checkpointed(OURS["gelu"]),
    },
    "swiglu": {
        "torch": TORCH["swiglu"],
        "gelu_kernels": OURS["swiglu"],
        "recompute": recomputed(
            lambda x, *parameters: functional.glu_linear(x, None, *parameters, gate="logistic")
        ),
        "mxfp8": in_mxfp8(functional.swiglu, functional.quantized_swiglu),
        "checkpoint": checkpointed(OURS["swiglu"]),
    },
}
# Of which the whole layer is compiled. They are measured last, as that takes long.
COMPILE = ", compiled"
COMPILED = {
    mlp: {f"torch{COMPILE}": TORCH[mlp], f"gelu_kernels{COMPILE}": OURS[mlp]} for mlp in MODES
}
# Errors in addition: four times that of a derivative; a number in MXFP8 is within 1/16.
SAVED = {"8bit": 0.01, "4bit": 0.2, "mxfp8": 1 / 16}
IN_MXFP8 = ("float32", "bfloat16")
# Bytes for an element of the hidden layer that saved_bytes does not see: only the innermost hooks,
# here save_quantized's, see what autograd saves.
UNSEEN = {"mxfp8": 1 + 1 / 32}
